// Where a player stood at each midnight, or hour: a line with the first place on top, and the same as a table.
import { draw, make, numberText, scoreText } from "/rankd-board.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, FLOOR] = [340, 156, 46, 12, 26, 128];
const FAR = 20; // times the best rank: then each step down the picture is a multiple
const LABEL_WIDTH = 44;

const isHourly = ({ history }) => history.every === "1h";
const labelOf = (definition) => (isHourly(definition) ? "Rank at each hour" : "Rank at each midnight");

const dateText = (ms, options, zone) => {
  try {
    return new Intl.DateTimeFormat(undefined, { ...options, timeZone: zone }).format(ms);
  } catch {
    return new Intl.DateTimeFormat(undefined, { ...options, timeZone: "UTC" }).format(ms);
  }
};

// A midnight ends a day: it is called by that day.
const whenOf = (point, definition) =>
  isHourly(definition)
    ? dateText(point.at, { day: "numeric", month: "short", hour: "numeric", minute: "2-digit" }, definition.time_zone)
    : dateText(point.at - 1, { day: "numeric", month: "short", year: "numeric" }, definition.time_zone);
const rankOf = (point) => `#${numberText(point.rank)}`;

const words = ({ points, best }, definition) => {
  const [first, last] = [points[0], points.at(-1)];
  const at = (point) => `${isHourly(definition) ? "at" : "at the end of"} ${whenOf(point, definition)}`;
  if (points.length === 1) return `${rankOf(first)} of ${numberText(first.total)} ${at(first)}.`;
  return `From ${rankOf(first)} ${at(first)} to ${rankOf(last)} ${at(last)}; best ${rankOf(best)} ${at(best)}.`;
};

const picture = (course, definition, id) => {
  const { points, best } = course;
  const [first, last] = [points[0], points.at(-1)];
  const ranks = points.map((point) => point.rank);
  const worst = ranks.reduce((a, b) => Math.max(a, b));
  const isFar = worst > FAR * best.rank;
  const depth = (rank) => (isFar ? Math.log(rank) : rank);
  const [low, high] = [depth(best.rank), depth(worst)];
  const span = last.at - first.at;
  const x = (point) => (span ? LEFT + ((point.at - first.at) / span) * (WIDTH - LEFT - RIGHT) : (LEFT + WIDTH) / 2);
  const y = (rank) => (high === low ? TOP : TOP + ((depth(rank) - low) / (high - low)) * (FLOOR - TOP));
  let path = "";
  let before = null;
  for (const point of points) {
    path += `${point.window === before ? "L" : "M"}${x(point).toFixed(1)} ${y(point.rank).toFixed(1)}`;
    before = point.window;
  }
  const axis = (rank) =>
    draw("text", { x: LEFT - 8, y: y(rank) + 4, "text-anchor": "end" }, `#${numberText(rank)}`);
  const date = (point, anchor) =>
    draw("text", { x: x(point), y: HEIGHT - 6, "text-anchor": anchor }, whenOf(point, definition));
  const isAlone = points.length === 1;
  const bestAt = x(best);
  const anchor = bestAt < LEFT + LABEL_WIDTH ? "start" : bestAt > WIDTH - RIGHT - LABEL_WIDTH ? "end" : "middle";
  return draw(
    "svg",
    {
      class: "past", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
      "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-desc`,
    },
    draw("title", { id: `${id}-title` }, labelOf(definition)),
    draw("desc", { id: `${id}-desc` }, words(course, definition)),
    draw("line", { class: "floor", x1: LEFT, y1: FLOOR + 6, x2: WIDTH - RIGHT, y2: FLOOR + 6 }),
    axis(best.rank),
    ...(worst === best.rank ? [] : [axis(worst)]),
    draw("path", { d: path, fill: "none" }),
    ...points.filter((_, at) => points.length < 40 || at === points.length - 1).map((point) =>
      draw("circle", { class: "point", cx: x(point).toFixed(1), cy: y(point.rank).toFixed(1), r: 2 })),
    draw("circle", { class: "best", cx: bestAt.toFixed(1), cy: y(best.rank).toFixed(1), r: 4.5 }),
    draw("text", { class: "best", x: bestAt.toFixed(1), y: y(best.rank) - 8, "text-anchor": anchor }, "best"),
    date(first, isAlone ? "middle" : "start"),
    ...(isAlone ? [] : [date(last, "end")]),
  );
};

const table = ({ points }, definition) => {
  const head = [isHourly(definition) ? "Hour" : "Day", "Rank", "Score", "Of"].map((name) => make("th", { scope: "col" }, name));
  const lines = points.toReversed().map((point) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, whenOf(point, definition)),
      make("td", {}, rankOf(point)),
      make("td", {}, scoreText(point.score, definition.decimals)),
      make("td", {}, numberText(point.total)),
    ));
  return make(
    "details",
    {},
    make("summary", {}, "As a table"),
    make(
      "div",
      { class: "past-table", tabindex: "0", role: "region", "aria-label": labelOf(definition) },
      make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...lines)),
    ),
  );
};

// Nothing where nothing is recorded.
export const pastFigure = (course, definition, id = "past") =>
  course.points.length
    ? make(
        "figure",
        { class: "past" },
        make("p", {}, labelOf(definition)),
        picture(course, definition, id),
        make("figcaption", {}, words(course, definition)),
        table(course, definition),
      )
    : null;
