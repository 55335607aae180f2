// The front page: every board, who leads it, how many stand there; live as far as one stream goes.
import { Feed, Source, boardPath, countText, instanceLabel, make, makeAvatar, makeCountry, makeName, peopleSheet, scoreText, windowLabel, windowNames, write } from "/rankd-board.js";
import { avatarOrigins, setUpTheme } from "/assets/chosen.js";
import { Connection } from "/assets/connection.js";

const TOPICS_MAX = 10; // of a stream
const REFRESH_MS = 15_000; // of boards beyond that
const READS_MAX = 4; // at the same time

document.adoptedStyleSheets = [peopleSheet];
setUpTheme();
const by = (id) => document.getElementById(id);
const origins = avatarOrigins().split(" ").filter(Boolean);
const source = new Source(location.origin);
const list = by("boards");
let feed = null;
const connection = new Connection(() => feed?.retry());

class Tile {
  constructor(definition) {
    this.definition = definition;
    this.isScoped = !definition.global; // there is no board of everybody to show
    this.entries = new Map();
    this.leader = make("p", { class: "leader" });
    this.count = make("span", { class: "count" });
    const windows = windowNames(definition).slice(0, 4).map((name) => make("li", {}, windowLabel(name)));
    const link = make("a", { href: `/boards/${encodeURIComponent(definition.id)}` }, make("bdi", {}, definition.title));
    this.element = make(
      "li",
      { class: "tile" },
      make("h2", {}, link),
      make("p", { class: "about" }, definition.description ?? ""),
      this.leader,
      make("div", { class: "line" }, this.count, make("ul", { class: "windows", "aria-label": "Windows" }, ...windows)),
    );
    write(this.leader, this.isScoped ? `by ${definition.scopes.join(", ")}` : " ");
  }

  snapshot({ entries, total, window }) {
    this.window = window;
    this.entries = new Map(entries.map((entry) => [entry.player, entry]));
    this.show(total);
  }
  change({ set, gone, total }) {
    for (const player of gone) this.entries.delete(player);
    for (const entry of set) this.entries.set(entry.player, entry);
    this.show(total);
  }

  show(total) {
    const first = [...this.entries.values()].sort((a, b) => a.rank - b.rank)[0];
    const where = this.window === "all_time" ? "" : ` · ${instanceLabel(this.window)}`;
    write(this.count, total ? `${countText(total, this.definition)}${where}` : "");
    const shown = JSON.stringify([first?.player, String(first?.score), first?.name, first?.avatar_url, first?.country]);
    if (shown === this.shown) return;
    this.shown = shown;
    if (!first) return void this.leader.replaceChildren("Nobody stands here yet.");
    const score = make("span", { class: "points" }, scoreText(first.score, this.definition.decimals));
    const says = make("span", { class: "unseen" }, "In the lead: ");
    this.leader.replaceChildren(says, makeAvatar(first, origins), makeName(first), makeCountry(first.country) ?? "", score);
  }

  async read() {
    if (!this.isScoped) this.snapshot(await source.get(boardPath(this.definition.id, "/top"), { limit: 1 }));
  }
}

const readAll = async (tiles) => {
  const waiting = [...tiles];
  const some = Array.from({ length: READS_MAX }, async () => {
    while (waiting.length) await waiting.shift().read();
  });
  await Promise.all(some);
};

const wait = () => list.replaceChildren(...[1, 2, 3].map(() => make("li", { class: "tile waiting", "aria-hidden": "true" })));
const miss = (title, text) => {
  list.replaceChildren();
  by("missing").replaceChildren(make("h2", {}, title), make("p", {}, text));
  by("missing").hidden = false;
};

const boards = async () => {
  for (let pause = 1_000; ; pause = Math.min(pause * 2, 15_000)) {
    try {
      return (await source.get("/v1/boards", {})).boards;
    } catch (problem) {
      if (problem.isFinal) throw problem;
      connection.show({ state: "lost", at: Date.now() + pause });
      await new Promise((done) => {
        const timer = setTimeout(done, pause);
        feed = { retry: () => (clearTimeout(timer), done()) };
      });
    }
  }
};

const begin = async () => {
  wait();
  let definitions;
  try {
    definitions = await boards();
  } catch {
    connection.show({ state: "refused" });
    return miss("These boards are not public.", "The server asks for a credential, which this page does not have.");
  }
  list.removeAttribute("aria-busy");
  connection.show({ state: "live" });
  if (!definitions.length) return miss("There is no board yet.", "Define one: PUT /v1/boards/arcade, or in the configuration under [boards.arcade].");
  const tiles = definitions.map((definition) => new Tile(definition));
  list.replaceChildren(...tiles.map((tile) => tile.element));
  const shown = tiles.filter((tile) => !tile.isScoped);
  const [live, others] = [shown.slice(0, TOPICS_MAX), shown.slice(TOPICS_MAX)];
  const byTopic = new Map(live.map((tile) => [`top:${tile.definition.id}`, tile]));
  if (byTopic.size) {
    feed = new Feed(source, [...byTopic.keys()], {
      poll: () => readAll(live),
      take(type, data) {
        if (type === "snapshot" || type === "change") byTopic.get(data.topic)?.[type](data);
      },
      tell: (status) => connection.show(status),
    });
    feed.start();
  }
  const again = async () => {
    if (!document.hidden) await readAll(others).catch(() => {});
    setTimeout(again, REFRESH_MS);
  };
  if (others.length) again();
};
addEventListener("pagehide", () => feed?.stop?.());
addEventListener("pageshow", (event) => event.persisted && begin());
begin();
