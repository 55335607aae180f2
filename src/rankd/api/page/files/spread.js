// How all scores are spread, and where you are among them.
import { boardPath, draw, make, numberText, shortScoreText } from "/rankd-board.js";

const REFRESH_MS = 10_000;
const BUCKETS = 32;
const FEW = 3;
const [WIDTH, HEIGHT, FLOOR, LIFT] = [320, 140, 120, 18];

export class Spread {
  #body = document.getElementById("spread-body");
  #page;
  #timer = null;
  #asked = 0;
  #found = null;

  // `page` has board, source, definition, where and own(), the user's own entry.
  constructor(page) {
    this.#page = page;
    this.refresh();
  }

  restart() {
    this.#found = null;
    this.#body.replaceChildren();
    this.refresh();
  }

  // The first scores are news; after them, the picture changes slowly.
  notice(total) {
    if (this.#found && total >= FEW && this.#found.total < FEW) this.refresh();
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
    if (found.total < FEW) {
      const words = found.total ? "Too few scores to draw a picture of." : "No scores yet.";
      return void this.#body.replaceChildren(make("p", {}, words));
    }
    const words = make("figcaption", {}, this.#words(found));
    this.#body.replaceChildren(make("figure", { class: "spread" }, this.#picture(found), words));
  }

  #words({ quantiles }) {
    const { decimals, order } = this.#page.definition;
    const text = (share) => shortScoreText(quantiles[share], decimals);
    const isLess = order === "asc";
    const side = isLess ? "or less" : "or more";
    return `Half of all have ${text("0.5")} ${side}; the top 10 % ${text(isLess ? "0.1" : "0.9")} ${side}.`;
  }

  #picture({ buckets, total }) {
    const text = (score) => shortScoreText(score, this.#page.definition.decimals);
    const own = this.#page.own();
    const [low, high] = [buckets[0].from, buckets.at(-1).to];
    const floor = draw("line", { class: "floor", x1: 0, x2: WIDTH, y1: FLOOR, y2: FLOOR });
    const first = draw("text", { x: 0, y: HEIGHT - 2 }, text(low));
    const last = draw("text", { x: WIDTH, y: HEIGHT - 2, "text-anchor": "end" }, text(high));
    const said = [`The scores of ${numberText(total)}, from ${text(low)} to ${text(high)}.`];
    if (own) said.push(`You have ${text(own.score)}.`);
    const here = own ? this.#here(own, Number(low), Number(high)) : [];
    const picture = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": said.join(" ") };
    return draw("svg", picture, ...this.#bars(buckets, own, text), floor, first, last, ...here);
  }

  #bars(buckets, own, text) {
    const most = Math.max(...buckets.map((bucket) => bucket.count));
    const step = WIDTH / buckets.length;
    const gap = step > 4 ? 1.5 : 0.5;
    return buckets.map((bucket, index) => {
      const height = bucket.count && Math.max(2, (bucket.count / most) * (FLOOR - LIFT));
      const isOwn = own && own.score >= bucket.from && own.score <= bucket.to;
      const x = index * step + gap / 2;
      const place = { x, y: FLOOR - height, width: step - gap, height, rx: Math.min(1.5, height / 2) };
      const range = `${text(bucket.from)} to ${text(bucket.to)}: ${numberText(bucket.count)}`;
      return draw("rect", { class: isOwn ? "pile own" : "pile", ...place }, draw("title", {}, range));
    });
  }

  #here({ score }, low, high) {
    const share = high === low ? 0.5 : (Number(score) - low) / (high - low);
    const x = Math.min(1, Math.max(0, share)) * WIDTH;
    const anchor = x < 24 ? "start" : x > WIDTH - 24 ? "end" : "middle";
    return [
      draw("line", { class: "here", x1: x, x2: x, y1: LIFT - 2, y2: FLOOR }),
      draw("text", { class: "here", x, y: LIFT - 6, "text-anchor": anchor }, "you"),
    ];
  }
}
