// Boards as the front page shows them.
import {
  boardPath, countText, make, makeAvatar, makeCountry, makeName, scoreText, windowLabel, windowNames, write,
} from "/rankd-board.js";

const SCORE_LENGTH_USUAL = 12; // characters; longer ones leave little room for a name on a phone

// The part of a definition that a tile shows: while it is the same, the tile stays.
export const keyOf = ({ id, title, description }) => JSON.stringify([id, title, description]);

// A board on the front page: its title, who leads it, how many stand there.
export class Tile {
  constructor(definition, source, origins) {
    this.key = keyOf(definition);
    this.source = source;
    this.origins = origins;
    this.definition = definition;
    this.isScoped = !definition.global; // there is no board of everybody to show
    this.entries = new Map();
    this.total = null; // not known yet
    this.isLive = false; // updated by a stream
    this.tell = () => {};
    this.leader = make("p", { class: "leader" });
    this.count = make("span", { class: "count" });
    const [first, ...others] = windowNames(definition);
    this.first = windowLabel(first);
    const windows = others.slice(0, 3).map((name) => make("li", {}, windowLabel(name)));
    const further = make("ul", { class: "windows", "aria-label": "Other windows" }, ...windows);
    const link = make("a", { href: `/boards/${encodeURIComponent(definition.id)}` }, make("bdi", {}, definition.title));
    this.element = make(
      "li",
      { class: "tile" },
      make("h2", {}, link),
      make("p", { class: "about" }, definition.description ?? ""),
      this.leader,
      make("div", { class: "line" }, this.count, further),
    );
    write(this.leader, this.isScoped ? `by ${definition.scopes.join(", ")}` : " ");
  }

  snapshot({ entries, total }) {
    this.entries = new Map(entries.map((entry) => [entry.player, entry]));
    this.show(total);
  }
  change({ set, gone, total }) {
    for (const player of gone) this.entries.delete(player);
    for (const entry of set) this.entries.set(entry.player, entry);
    this.show(total);
  }

  show(total) {
    this.total = total;
    this.tell();
    const first = [...this.entries.values()].sort((a, b) => a.rank - b.rank)[0];
    write(this.count, `${countText(total, this.definition)} · ${this.first}`);
    const shown = JSON.stringify([first?.player, String(first?.score), first?.name, first?.avatar_url, first?.country]);
    if (shown === this.shown) return;
    this.shown = shown;
    if (!first) return void this.leader.replaceChildren("Nobody stands here yet.");
    const text = scoreText(first.score, this.definition.decimals);
    const score = make("span", { class: text.length > SCORE_LENGTH_USUAL ? "points long" : "points" }, text);
    const says = make("span", { class: "unseen" }, "In the lead: ");
    const face = makeAvatar(first, this.origins);
    this.leader.replaceChildren(says, face, makeName(first), makeCountry(first.country) ?? "", score);
  }

  async read() {
    if (!this.isScoped) this.snapshot(await this.source.get(boardPath(this.definition.id, "/top"), { limit: 1 }));
  }
}
