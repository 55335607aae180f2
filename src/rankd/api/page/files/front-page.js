// The front page: boards, who leads each, how many stand there; live as far as one stream goes.
import { Feed, Source, insist, make, peopleSheet, write } from "/rankd-board.js";
import { avatarOrigins, setUpTheme } from "/assets/chosen.js";
import { Connection } from "/assets/connection.js";
import { Tile, keyOf } from "/assets/tile.js";

const TOPICS_MAX = 10; // of a stream
const REFRESH_MS = 15_000; // of boards beyond that, as far as they can be seen
const READS_MAX = 4; // at the same time
const PAGE_BOARDS = 60;
const FEW_BOARDS = 9; // need no search
const TYPING_MS = 180; // after the last letter

document.adoptedStyleSheets = [peopleSheet];
setUpTheme();
const by = (id) => document.getElementById(id);
const origins = avatarOrigins().split(" ").filter(Boolean);
const source = new Source(location.origin);
const list = by("boards");
let feed = null;
let streamed = []; // tiles that the feed updates
let tiles = [];
let known = ""; // what the list shows
let sought = ""; // how the ids or titles of the boards shown begin
let room = PAGE_BOARDS; // for boards
let asking = null; // the AbortController of the current request for boards; a new one aborts it
const connection = new Connection(() => feed?.retry());

// On empty boards: how to submit a score; hidden after the first one.
const invite = (tiles) => {
  const isEmpty = !sought && tiles.length > 0 && tiles.every((tile) => tile.total !== null && Number(tile.total) === 0);
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

const readAll = async (those) => {
  const waiting = [...those];
  const some = Array.from({ length: READS_MAX }, async () => {
    while (waiting.length) await waiting.shift().read();
  });
  await Promise.all(some);
};

// Boards without a stream are polled while they are visible.
const inView = new Set();
const tileOf = new WeakMap();
const refresh = (those) => readAll(those.filter((tile) => !tile.isLive)).catch(() => {});
const watching = new IntersectionObserver((changes) => {
  const seen = changes.filter((change) => change.isIntersecting).map((change) => tileOf.get(change.target));
  for (const change of changes) inView.delete(tileOf.get(change.target));
  for (const tile of seen) inView.add(tile);
  refresh(seen.filter((tile) => tile.total === null));
}, { rootMargin: "100px" });

const wait = () => {
  const bone = () => make("li", { class: "tile waiting", "aria-hidden": "true" });
  list.replaceChildren(bone(), bone(), bone());
};
const miss = (title, text) => {
  place([]);
  by("missing").replaceChildren(make("h2", {}, title), make("p", {}, text));
  by("missing").hidden = false;
};

// As many boards as there is room for, and whether there are more.
const find = async (signal) => {
  const found = [];
  let cursor = null;
  do {
    const query = { search: sought, limit: Math.min(room - found.length, PAGE_BOARDS), cursor };
    const page = await source.get("/v1/boards", query, signal);
    found.push(...page.boards);
    cursor = page.next;
  } while (cursor !== null && found.length < room);
  return { found, isMore: cursor !== null };
};

// Put tiles into the list; those that stay where they are keep the focus.
const place = (next) => {
  const [before, stays] = [tiles, new Set(next)];
  tiles = next;
  for (const tile of before.filter((one) => !stays.has(one))) {
    watching.unobserve(tile.element);
    inView.delete(tile);
  }
  const isLonger = before.length > 0 && before.every((tile, at) => tile === tiles[at]);
  const fresh = isLonger ? tiles.slice(before.length) : tiles;
  if (isLonger) list.append(...fresh.map((tile) => tile.element));
  else list.replaceChildren(...fresh.map((tile) => tile.element));
  for (const tile of fresh) {
    tileOf.set(tile.element, tile);
    watching.observe(tile.element);
  }
  stream(tiles.filter((tile) => !tile.isScoped));
};

const stream = (shown) => {
  for (const tile of shown) tile.tell = () => invite(shown);
  invite(shown);
  const [before, live] = [streamed, shown.slice(0, TOPICS_MAX)];
  shown.forEach((tile, at) => (tile.isLive = at < TOPICS_MAX));
  if (live.length > 0 && live.length === before.length && live.every((tile, at) => tile === before[at])) return;
  streamed = live;
  feed?.stop?.();
  feed = null;
  if (!live.length) return;
  const byTopic = new Map(live.map((tile) => [`top:${tile.definition.id}`, tile]));
  feed = new Feed(source, [...byTopic.keys()], {
    poll: () => readAll(live),
    take(type, data) {
      if (type === "snapshot" || type === "change") byTopic.get(data.topic)?.[type](data);
      else if (data.code) look();
    },
    tell: (status) => connection.show(status),
  });
  feed.start();
};

const countOf = (count, isMore) => {
  const what = `${isMore ? "The first " : ""}${count} ${count === 1 ? "board" : "boards"}`;
  return sought ? `${what} whose name begins with “${sought}”` : `${what}, as they stand now`;
};

const news = ({ found, isMore }) => JSON.stringify([sought, isMore, found.map(keyOf)]);

const show = (answer) => {
  const { found, isMore } = answer;
  known = news(answer);
  list.removeAttribute("aria-busy");
  by("more").hidden = !isMore;
  by("find").hidden = !sought && !isMore && found.length <= FEW_BOARDS;
  write(by("about"), found.length ? countOf(found.length, isMore) : "");
  if (!found.length && sought) {
    return miss(`No board’s name begins with “${sought}”.`, "Ids and titles are found by how they begin.");
  }
  if (!found.length) {
    return miss("There is no board yet.", "Define one: PUT /v1/boards/arcade, or [boards.arcade] in rankd.toml.");
  }
  by("missing").hidden = true;
  const before = new Map(tiles.map((tile) => [tile.key, tile]));
  place(found.map((definition) => before.get(keyOf(definition)) ?? new Tile(definition, source, origins)));
};

const begin = async () => {
  asking?.abort();
  const { signal } = (asking = new AbortController());
  const hold = (pause) => {
    feed?.stop?.();
    [feed, streamed] = [pause, []];
  };
  try {
    const answer = await insist(() => find(signal), { tell: (status) => connection.show(status), hold, signal });
    connection.show({ state: "live" });
    show(answer);
  } catch {
    if (signal.aborted) return;
    connection.show({ state: "refused" });
    miss("These boards are not public.", "The server asks for a credential, which this page does not have.");
  }
};

// The list of boards is read again from time to time, and when the stream reports a deleted board.
const look = async () => {
  const { signal } = asking;
  try {
    if (document.hidden) return;
    const answer = await find(signal);
    if (!signal.aborted && news(answer) !== known) show(answer);
  } catch {
    // The feed says when the connection is lost.
  }
};

const seek = async (text) => {
  if (text === sought) return;
  [sought, room] = [text, PAGE_BOARDS];
  await begin();
  scrollTo({ top: 0 });
};
let typing = null;
by("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => seek(by("search").value.trim()), TYPING_MS);
});
addEventListener("keydown", (event) => {
  const isTyping = event.target.matches?.("input") || event.ctrlKey || event.metaKey || event.altKey;
  if (event.key !== "/" || isTyping || by("find").hidden) return;
  event.preventDefault();
  by("search").select();
});
by("more").addEventListener("click", async () => {
  const count = tiles.length;
  by("more").disabled = true;
  room = count + PAGE_BOARDS;
  await begin();
  by("more").disabled = false;
  tiles[count]?.element.querySelector("a").focus({ preventScroll: true });
});
setInterval(() => {
  look();
  if (!document.hidden) refresh([...inView]);
}, REFRESH_MS);
addEventListener("pagehide", () => feed?.stop?.());
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  streamed = []; // the stream was stopped
  begin();
});
wait();
begin();
