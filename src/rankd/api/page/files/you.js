// You, and who is around you: who to catch, and who is close behind.
import { boardPath, make, makeName, nameOf, numberText, percentText, scoreText, shortScoreText } from "/rankd-board.js";
import { changeText } from "/assets/card.js";
import { toast } from "/assets/toasts.js";

const REFRESH_MS = 5_000;
const SOON_MS = 150;
const NEIGHBOURS = 10; // watched, to report who was passed
const SHOWN = 2; // on each side

// JSON cannot write an integer beyond 53 bits as a number of JavaScript: differences are made of both kinds.
const difference = (a, b) => (typeof a === typeof b ? a - b : BigInt(a) - BigInt(b));

export class You {
  #body = document.getElementById("you-body");
  #page;
  #timer = null;
  #asked = 0;
  #around = null;
  #names = new Map();

  // `page` has board, source, definition, where, me, setMe, open, find, courses and isUsual.
  constructor(page) {
    this.#page = page;
    this.refresh();
  }

  // For another window, scope or player.
  restart() {
    this.#around = null;
    this.refresh();
  }

  refreshSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.refresh(), SOON_MS);
  }

  async refresh() {
    clearTimeout(this.#timer);
    const player = this.#page.me();
    const asked = (this.#asked += 1);
    if (!player) return this.#showNobody();
    try {
      const found = document.hidden ? undefined : await this.#read(player);
      if (asked !== this.#asked) return;
      if (found === null) this.#showAbsent(player);
      else if (found) this.#take(found);
    } catch {
      // The page says when the connection is lost.
    }
    if (asked === this.#asked) this.#timer = setTimeout(() => this.refresh(), REFRESH_MS);
  }

  async #read(player) {
    const { board, source, where } = this.#page;
    const { entries } = await source.post(boardPath(board, "/ranks"), where(), { players: [player] });
    if (!entries.length) return null;
    const path = boardPath(board, `/players/${encodeURIComponent(player)}`);
    const [around, standing] = await Promise.all([
      source.get(`${path}/around`, { ...where(), above: NEIGHBOURS, below: NEIGHBOURS }),
      source.get(path, where()),
    ]);
    return { around, standing };
  }

  // The live topic reports who was passed; without one, the neighbours before and after are compared.
  #take({ around, standing }) {
    const before = this.#around;
    this.#around = around;
    for (const entry of [...around.above, ...around.below]) this.#names.set(entry.player, nameOf(entry));
    this.#page.courses.note(around.player);
    if (before && !this.#page.isUsual() && before.window === around.window && before.scope === around.scope) {
      const players = (entries) => new Set(entries.map((entry) => entry.player));
      const [above, below] = [players(around.above), players(around.below)];
      this.tell({
        passed: before.above.map((entry) => entry.player).filter((player) => below.has(player)),
        overtaken_by: before.below.map((entry) => entry.player).filter((player) => above.has(player)),
      });
    }
    this.#show(around, standing);
  }

  tell({ passed, overtaken_by: overtakenBy }) {
    const people = (players) => {
      const name = (player) => make("bdi", {}, this.#names.get(player) ?? player);
      const named = players.slice(0, 2).flatMap((player, at) => [at ? ", " : "", name(player)]);
      return players.length > 2 ? [...named, ` and ${numberText(players.length - 2)} more`] : named;
    };
    if (passed.length) toast("up", "You passed ", ...people(passed), ".");
    if (overtakenBy.length) toast("down", "You were overtaken by ", ...people(overtakenBy), ".");
  }

  #showNobody() {
    this.#around = null;
    const find = make("button", { type: "button" }, "Find me");
    find.addEventListener("click", () => this.#page.find());
    const words = "Choose yourself to see who is around you, and to hear when you are passed.";
    this.#body.replaceChildren(make("p", {}, words), find);
  }

  #showAbsent(player) {
    this.#around = null;
    const other = make("button", { type: "button" }, "Not me");
    other.addEventListener("click", () => this.#page.setMe(null));
    this.#body.replaceChildren(make("p", {}, make("bdi", {}, player), " has no score here yet."), other);
  }

  #show(around, standing) {
    const { definition } = this.#page;
    const { player, above, below } = around;
    const facts = [`top ${percentText(standing.top_percent)}`];
    if (standing.rank_change) facts.push(`${changeText(standing.rank_change)} since midnight`);
    const near = [...above.slice(-SHOWN), player, ...below.slice(0, SHOWN)];
    const focused = this.#body.contains(document.activeElement) ? document.activeElement.dataset.player : null;
    const lines = near.map((entry) => this.#line(entry, player, definition));
    const list = make("ol", { class: "around", "aria-label": "Around you", role: "list" }, ...lines);
    const said = make("span", { class: "unseen" }, "Rank ");
    const small = make("small", {}, facts.join(" · "));
    const place = make("p", { class: "big" }, said, `#${numberText(player.rank)}`, small);
    if (this.#body.firstElementChild?.className === "big") {
      this.#body.firstElementChild.replaceChildren(...place.childNodes);
      this.#body.querySelector(".around").replaceWith(list);
    } else {
      const other = make("button", { type: "button" }, "Not me");
      other.addEventListener("click", () => this.#page.setMe(null));
      this.#body.replaceChildren(place, list, other);
    }
    const again = [...list.querySelectorAll("button")].find((button) => button.dataset.player === focused);
    if (focused) again?.focus({ preventScroll: true });
  }

  #line(entry, own, { decimals }) {
    const isOwn = entry.player === own.player;
    const gap = difference(entry.score, own.score);
    const sign = gap > 0 ? "+" : gap < 0 ? "−" : "±";
    const score = isOwn ? scoreText(entry.score, decimals) : sign + shortScoreText(gap < 0 ? -gap : gap, decimals);
    const line = make(
      "button",
      { type: "button", "data-player": entry.player },
      make("span", { class: "place" }, numberText(entry.rank)),
      makeName(entry),
      make("span", { class: "gap", title: scoreText(entry.score, decimals) }, score),
    );
    line.addEventListener("click", () => this.#page.open(entry));
    return make("li", { class: isOwn ? "own" : "", "aria-current": isOwn ? "true" : null }, line);
  }
}
