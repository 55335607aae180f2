// Where players stood since the page was opened: a point whenever a rank changes.
import { draw, numberText } from "/rankd-board.js";

const POINTS_MAX = 200;
const PLAYERS_MAX = 2_000;
const LABEL = "Rank since the page was opened";

export class Courses {
  #courses = new Map();

  note(entry, now = Date.now()) {
    const course = this.#courses.get(entry.player) ?? [];
    if (course.at(-1)?.rank !== entry.rank) course.push({ at: now, rank: entry.rank });
    if (course.length > POINTS_MAX) course.shift();
    if (this.#courses.size < PLAYERS_MAX || this.#courses.has(entry.player)) this.#courses.set(entry.player, course);
  }
  of(player) {
    return this.#courses.get(player) ?? [];
  }
  clear() {
    this.#courses.clear();
  }
}

// A line that is higher where the rank is better; it stays where it is between two points.
export const sparkline = (course, now = Date.now()) => {
  const [width, height, edge] = [280, 56, 5];
  const start = Math.min(course[0].at, now - 10_000);
  const ranks = course.map((point) => point.rank);
  const [best, worst] = [Math.min(...ranks), Math.max(...ranks)];
  const x = (at) => edge + ((at - start) / (now - start)) * (width - 2 * edge);
  const y = (rank) => (best === worst ? height / 2 : edge + ((rank - best) / (worst - best)) * (height - 2 * edge));
  let path = `M${x(course[0].at).toFixed(1)} ${y(course[0].rank).toFixed(1)}`;
  for (const point of course.slice(1)) path += `H${x(point.at).toFixed(1)}V${y(point.rank).toFixed(1)}`;
  path += `H${x(now).toFixed(1)}`;
  const last = ranks.at(-1);
  const [high, low, current] = [best, worst, last].map(numberText);
  const said = best === worst ? `always ${current}` : `between ${high} and ${low}, now ${current}`;
  return draw(
    "svg",
    { class: "sparkline", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${LABEL}: ${said}` },
    draw("path", { d: path, fill: "none" }),
    draw("circle", { cx: x(now).toFixed(1), cy: y(last).toFixed(1), r: 3.5 }),
  );
};
