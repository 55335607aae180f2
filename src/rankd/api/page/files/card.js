// A player's card: where they stand, how that came about since the page was opened, and whether this is you.
import {
  boardPath, make, makeAvatar, makeCountry, makeName, momentText, nameOf, numberText, percentText, rankText, scoreText,
  write,
} from "/rankd-board.js";
import { sparkline } from "/assets/courses.js";
import { pastFigure } from "/assets/past.js";

const REFRESH_MS = 2_000;
const METADATA_MAX = 8;

const fact = (label, ...value) => make("div", {}, make("dt", {}, label), make("dd", {}, ...value));
export const changeText = (places) =>
  places === 0 ? "unchanged" : `${places > 0 ? "▲" : "▼"} ${numberText(Math.abs(places))}`;

export class Card {
  #dialog = document.getElementById("card");
  #page;
  #entry = null;
  #timer = null;
  #parts = {};

  // `page` has board, source, definition, origins, where, label, courses, me and setMe(player).
  constructor(page) {
    this.#page = page;
    this.#dialog.addEventListener("close", () => this.#closed());
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
  }

  open(entry) {
    this.#entry = entry;
    this.#build();
    this.#show(entry);
    if (!this.#dialog.open) this.#dialog.showModal();
    this.#refresh();
    this.#readPast(entry.player);
  }

  // Other parts of the page may read the same player: their answers are shown here too.
  update(entries) {
    const entry = this.#dialog.open && entries.find((one) => one.player === this.#entry.player);
    if (entry) this.#show({ ...this.#entry, ...entry });
  }

  #closed() {
    clearTimeout(this.#timer);
    this.#entry = null;
  }

  async #refresh() {
    clearTimeout(this.#timer);
    const { player } = this.#entry;
    const { board, source, where } = this.#page;
    try {
      const { entries } = await source.post(boardPath(board, "/ranks"), where(), { players: [player] });
      const path = boardPath(board, `/players/${encodeURIComponent(player)}`);
      const standing = entries.length ? await source.get(path, where()) : { ...this.#entry, rank: null };
      if (this.#entry?.player === player) this.#show(standing);
    } catch {
      // The page says when the connection is lost.
    }
    if (this.#entry?.player === player) this.#timer = setTimeout(() => this.#refresh(), REFRESH_MS);
  }

  // Where the player stood at midnights, on boards that keep it; read once, since it changes once a day.
  async #readPast(player) {
    const { board, source, where, definition } = this.#page;
    if (!definition.history) return;
    const path = boardPath(board, `/players/${encodeURIComponent(player)}/course`);
    const { past } = this.#parts;
    try {
      const figure = pastFigure(await source.get(path, where()), definition);
      if (this.#parts.past === past && figure) past.replaceChildren(figure);
    } catch {
      // The card is whole without it.
    }
  }

  #build() {
    const entry = this.#entry;
    const close = make("button", { type: "button", class: "icon close", "aria-label": "Close" }, "×");
    close.addEventListener("click", () => this.#dialog.close());
    const mine = make("button", { type: "button", class: "mine" });
    mine.addEventListener("click", () => {
      this.#page.setMe(this.#page.me() === entry.player ? null : entry.player);
      this.#showMine(mine);
    });
    this.#showMine(mine);
    const isNamed = nameOf(entry) !== entry.player;
    const title = make("h2", { id: "card-name" }, makeName(entry));
    const id = isNamed ? make("bdi", {}, entry.player) : null;
    const under = make("p", { class: "id" }, makeCountry(entry.country), id);
    const facts = make("dl", { class: "facts" });
    const course = make("div", { class: "course" });
    const past = make("div");
    const more = make("dl", { class: "metadata" });
    const label = make("p", { class: "label" }, this.#page.label());
    this.#parts = { facts, course, past, more };
    const face = makeAvatar(entry, this.#page.origins);
    const head = make("div", { class: "who" }, face, make("div", {}, title, under), close);
    this.#dialog.replaceChildren(head, label, facts, course, past, more, make("div", { class: "actions" }, mine));
  }

  #showMine(button) {
    write(button, this.#page.me() === this.#entry.player ? "This is not me" : "This is me");
  }

  #show(entry) {
    this.#entry = entry;
    const { facts, course, more } = this.#parts;
    const { decimals } = this.#page.definition;
    if (!entry.rank) {
      facts.replaceChildren(fact("Rank", "no score here yet"));
      course.replaceChildren();
      more.replaceChildren();
      return;
    }
    this.#page.courses.note(entry);
    const rows = [fact("Rank", `#${rankText(entry)}`), fact("Score", scoreText(entry.score, decimals))];
    if (entry.top_percent !== undefined) rows.push(fact("Among all", `top ${percentText(entry.top_percent)}`));
    const change = entry.rank_change ?? null;
    if (change !== null) rows.push(fact("Since midnight", changeText(change)));
    facts.replaceChildren(...rows);
    const points = this.#page.courses.of(entry.player);
    course.replaceChildren(make("p", {}, "Rank since this page was opened"), sparkline(points));
    const metadata = Object.entries(entry.metadata ?? {}).slice(0, METADATA_MAX);
    const reached = entry.reached_at ? [fact("Reached", momentText(entry.reached_at))] : [];
    const shown = (value) => make("bdi", {}, typeof value === "string" ? value : JSON.stringify(value));
    more.replaceChildren(...reached, ...metadata.map(([name, value]) => fact(name, shown(value))));
  }
}
