// The front page: every board, who leads it, how many stand there; live as far as one stream goes.
import {
  Feed, Source, boardPath, countText, insist, make, makeAvatar, makeCountry, makeName, peopleSheet, scoreText,
  windowLabel, windowNames, write,
} from "/rankd-board.js";
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
let rest = []; // tiles that no stream tells about
const connection = new Connection(() => feed?.retry());

class Tile {
  constructor(definition) {
    this.definition = definition;
    this.isScoped = !definition.global; // there is no board of everybody to show
    this.entries = new Map();
    this.total = null; // not known yet
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
    const score = make("span", { class: "points" }, scoreText(first.score, this.definition.decimals));
    const says = make("span", { class: "unseen" }, "In the lead: ");
    const face = makeAvatar(first, origins);
    this.leader.replaceChildren(says, face, makeName(first), makeCountry(first.country) ?? "", score);
  }

  async read() {
    if (!this.isScoped) this.snapshot(await source.get(boardPath(this.definition.id, "/top"), { limit: 1 }));
  }
}

// Where nobody stands anywhere, how to change that; gone with the first score.
const invite = (tiles) => {
  const isEmpty = tiles.length > 0 && tiles.every((tile) => tile.total !== null && Number(tile.total) === 0);
  if (isEmpty === !by("first").hidden) return;
  by("first").hidden = !isEmpty;
  if (!isEmpty) return;
  const { id, score_min: least, score_max: most } = tiles[0].definition;
  const body = `{"board":${JSON.stringify(id)},"player":"alice","score":${least <= 100 && most >= 100 ? 100 : least}}`;
  const command = [
    `curl ${location.origin}/v1/scores \\`,
    `  -H "Authorization: Bearer $RANKD_TOKEN" \\`,
    `  -H "Content-Type: application/json" \\`,
    `  -d '${body}'`,
  ];
  const maker = make("code", {}, "rankd token --scope scores:write");
  by("first").replaceChildren(
    make("h2", {}, "Send the first score"),
    make("pre", { tabindex: "0" }, make("code", {}, command.join("\n"))),
    make("p", {}, "It shows here the moment it is ranked. A key that may write scores comes from ", maker, "."),
  );
};

const readAll = async (tiles) => {
  const waiting = [...tiles];
  const some = Array.from({ length: READS_MAX }, async () => {
    while (waiting.length) await waiting.shift().read();
  });
  await Promise.all(some);
};

const wait = () => {
  const bone = () => make("li", { class: "tile waiting", "aria-hidden": "true" });
  list.replaceChildren(bone(), bone(), bone());
};
const miss = (title, text) => {
  list.replaceChildren();
  by("missing").replaceChildren(make("h2", {}, title), make("p", {}, text));
  by("missing").hidden = false;
};

const boards = async () => {
  const ask = () => source.get("/v1/boards", {});
  return (await insist(ask, { tell: (status) => connection.show(status), hold: (pause) => (feed = pause) })).boards;
};

let known = "";
const isNews = (definitions) => {
  const before = known;
  known = JSON.stringify(definitions.map(({ id, title, description }) => [id, title, description]));
  return known !== before;
};

// Boards come and go: now and then, and when the stream says that one is gone, they are asked for again.
const look = async () => {
  try {
    if (!document.hidden && isNews((await source.get("/v1/boards", {})).boards)) await begin();
  } catch {
    // The feed says when the connection is lost.
  }
};

const begin = async () => {
  feed?.stop?.();
  let definitions;
  try {
    definitions = await boards();
  } catch {
    connection.show({ state: "refused" });
    return miss("These boards are not public.", "The server asks for a credential, which this page does not have.");
  }
  isNews(definitions);
  by("missing").hidden = true;
  list.removeAttribute("aria-busy");
  connection.show({ state: "live" });
  if (!definitions.length) {
    return miss("There is no board yet.", "Define one: PUT /v1/boards/arcade, or [boards.arcade] in rankd.toml.");
  }
  write(by("about"), `${definitions.length} ${definitions.length === 1 ? "board" : "boards"}, as they stand now`);
  const tiles = definitions.map((definition) => new Tile(definition));
  list.replaceChildren(...tiles.map((tile) => tile.element));
  const shown = tiles.filter((tile) => !tile.isScoped);
  for (const tile of shown) tile.tell = () => invite(shown);
  const [live, others] = [shown.slice(0, TOPICS_MAX), shown.slice(TOPICS_MAX)];
  const byTopic = new Map(live.map((tile) => [`top:${tile.definition.id}`, tile]));
  if (byTopic.size) {
    feed = new Feed(source, [...byTopic.keys()], {
      poll: () => readAll(live),
      take(type, data) {
        if (type === "snapshot" || type === "change") byTopic.get(data.topic)?.[type](data);
        else if (data.code) look();
      },
      tell: (status) => connection.show(status),
    });
    feed.start();
  }
  rest = others;
  if (rest.length) readAll(rest).catch(() => {});
};
setInterval(() => {
  look();
  if (!document.hidden && rest.length) readAll(rest).catch(() => {});
}, REFRESH_MS);
addEventListener("pagehide", () => feed?.stop?.());
addEventListener("pageshow", (event) => event.persisted && begin());
wait();
begin();
