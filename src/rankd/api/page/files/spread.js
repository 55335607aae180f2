// How all scores are spread, and where you are among them.
import { boardPath, draw, make, numberText, shortScoreText } from "/rankd-board.js";

const REFRESH_MS = 10_000;
const BUCKETS = 32;
const [WIDTH, HEIGHT, FLOOR, LIFT] = [320, 132, 116, 14];

export class Spread {
  #body = document.getElementById("spread-body");
  #page;
  #timer = null;
  #asked = 0;
  #found = null;

  // `page` has board, source, definition, where and own(), the entry of whoever this is.
  constructor(page) {
    this.#page = page;
    this.refresh();
  }

  restart() {
    this.#found = null;
    this.#body.replaceChildren();
    this.refresh();
  }

  async refresh() {
    clearTimeout(this.#timer);
    const asked = (this.#asked += 1);
    const { board, source, where } = this.#page;
    try {
      if (!document.hidden || !this.#found) {
        const found = await source.get(boardPath(board, "/distribution"), { ...where(), buckets: BUCKETS });
        if (asked !== this.#asked) return;
        this.#found = found;
        this.show();
      }
    } catch {
      // The page says when the connection is lost.
    }
    if (asked === this.#asked) this.#timer = setTimeout(() => this.refresh(), REFRESH_MS);
  }

  show() {
    const found = this.#found;
    if (!found) return;
    if (!found.total) return this.#body.replaceChildren(make("p", {}, "No scores yet."));
    this.#body.replaceChildren(make("figure", { class: "spread" }, this.#picture(found), make("figcaption", {}, this.#words(found))));
  }

  #words({ quantiles, total }) {
    const { decimals, order } = this.#page.definition;
    const text = (share) => shortScoreText(quantiles[share], decimals);
    if (total < 3) return "Too few scores to speak of.";
    const isLess = order === "asc";
    const side = isLess ? "or less" : "or more";
    return `Half of all have ${text("0.5")} ${side}; the top 10 % ${text(isLess ? "0.1" : "0.9")} ${side}.`;
  }

  #picture({ buckets, total }) {
    const { decimals } = this.#page.definition;
    const own = this.#page.own();
    const [low, high] = [Number(buckets[0].from), Number(buckets.at(-1).to)];
    const most = Math.max(...buckets.map((bucket) => bucket.count));
    const step = WIDTH / buckets.length;
    const gap = step > 4 ? 1.5 : 0.5;
    const at = (score) => (high === low ? WIDTH / 2 : Math.min(1, Math.max(0, (Number(score) - low) / (high - low))) * WIDTH);
    const bars = buckets.map((bucket, index) => {
      const tall = bucket.count && Math.max(2, (bucket.count / most) * (FLOOR - LIFT));
      const isOwn = own && own.score >= bucket.from && own.score <= bucket.to;
      const range = `${shortScoreText(bucket.from, decimals)} to ${shortScoreText(bucket.to, decimals)}: ${numberText(bucket.count)}`;
      const place = { x: (index * step + gap / 2).toFixed(2), y: (FLOOR - tall).toFixed(2), width: Math.max(0.5, step - gap).toFixed(2), height: tall.toFixed(2) };
      return draw("rect", { class: isOwn ? "pile own" : "pile", rx: Math.min(1.5, tall / 2), ...place }, draw("title", {}, range));
    });
    const edge = { class: "edge", y: HEIGHT - 2 };
    const marks = [
      draw("line", { class: "floor", x1: 0, x2: WIDTH, y1: FLOOR, y2: FLOOR }),
      draw("text", { ...edge, x: 0 }, shortScoreText(buckets[0].from, decimals)),
      draw("text", { ...edge, x: WIDTH, "text-anchor": "end" }, shortScoreText(buckets.at(-1).to, decimals)),
    ];
    let said = `The scores of ${numberText(total)}, from ${shortScoreText(buckets[0].from, decimals)} to ${shortScoreText(buckets.at(-1).to, decimals)}.`;
    if (own) {
      const x = at(own.score);
      const anchor = x < 24 ? "start" : x > WIDTH - 24 ? "end" : "middle";
      marks.push(draw("line", { class: "here", x1: x, x2: x, y1: LIFT - 2, y2: FLOOR }));
      marks.push(draw("text", { class: "here", x, y: LIFT - 5, "text-anchor": anchor }, "you"));
      said += ` You have ${shortScoreText(own.score, decimals)}.`;
    }
    return draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": said }, ...bars, ...marks);
  }
}
