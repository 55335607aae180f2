// A board's page: the live table in the middle, and around it all that follows from it.
import {
  boardPath, countText, insist, instanceLabel, make, nameOf, peopleSheet, windowNames, write,
} from "/rankd-board.js";
import { Card } from "/assets/card.js";
import { avatarOrigins, me, setMe, setUpTheme } from "/assets/chosen.js";
import { Connection } from "/assets/connection.js";
import { Courses } from "/assets/courses.js";
import { Podium } from "/assets/podium.js";
import { Search } from "/assets/search.js";
import { Spread } from "/assets/spread.js";
import { toast } from "/assets/toasts.js";
import { Where } from "/assets/where.js";
import { You } from "/assets/you.js";

document.adoptedStyleSheets = [peopleSheet];
const by = (id) => document.getElementById(id);
const table = by("board");
const board = decodeURIComponent(location.pathname.split("/")[2]);
const origins = avatarOrigins().split(" ").filter(Boolean);

let waiting = table;
const connection = new Connection(() => waiting.retry());
const courses = new Courses();
const podium = new Podium(origins, (entry) => card?.open(entry));
let where = null;
let card = null;
let you = null;
let spread = null;
let shown = {}; // the instance, and who leads it

const page = {
  board,
  origins,
  courses,
  definition: null,
  get source() {
    return table.source;
  },
  where: () => ({ window: where.window, scope: where.scope }),
  label: () => where.label,
  // Whether the player's topic covers this instance.
  isUsual: () => {
    const isFirst = !where.window || where.window === windowNames(page.definition)[0];
    return isFirst && !where.scope && table.status.state === "live";
  },
  me: () => me(page.definition),
  own: () => table.own ?? table.entries.find((entry) => entry.player === page.me()) ?? null,
  find: () => search.focus(),
  open: (entry) => card.open(entry),
  setMe(player) {
    setMe(page.definition, player);
    if (player) table.setAttribute("player", player);
    else table.removeAttribute("player");
    you.restart();
    spread.show();
  },
};
let search = null;

setUpTheme((theme) => (theme ? table.setAttribute("theme", theme) : table.removeAttribute("theme")));
table.setAttribute("avatars", avatarOrigins());

const point = () => {
  for (const [name, value] of Object.entries(page.where())) {
    if (value) table.setAttribute(name, value);
    else table.removeAttribute(name);
  }
};
const choose = () => {
  shown = {};
  podium.wait();
  point();
  you.restart();
  spread.restart();
};

const begin = (definition) => {
  page.definition = definition;
  document.title = `${definition.title} · rankd`;
  write(by("title"), definition.title);
  write(by("about"), definition.description ?? "");
  where = new Where(definition, choose);
  card = new Card(page);
  search = new Search(page);
  you = new You(page);
  spread = new Spread(page);
};

// Shows that the board does not exist or may not be read, with a link back.
const miss = ({ problem }) => {
  const [title, text] =
    problem.status === 401 || problem.status === 403
      ? ["These boards are not public.", "The server asks for a credential, which this page does not have."]
      : ["There is no such board, window or scope.", problem.message];
  const back = make("p", {}, make("a", { href: "/" }, "All boards"));
  by("missing").replaceChildren(make("h2", {}, title), make("p", {}, text), back);
  by("missing").hidden = false;
  by("columns").hidden = true;
  if (!page.definition) write(by("title"), board);
};

table.addEventListener("rankd-status", ({ detail }) => {
  connection.show(detail);
  if (detail.state === "refused") miss(detail);
  else if (!by("missing").hidden) {
    by("missing").hidden = true;
    by("columns").hidden = false;
  }
});

table.addEventListener("rankd-update", ({ detail: { entries, answer, definition } }) => {
  const instance = `${answer.window} ${answer.scope}`;
  if (shown.instance !== instance) courses.clear();
  podium.show(entries, definition.decimals);
  for (const entry of entries) courses.note(entry);
  card.update(entries);
  spread.notice(answer.total);
  const [first] = entries;
  const isOther = shown.instance === instance && shown.leader && first && first.player !== shown.leader;
  if (isOther) toast("lead", make("bdi", {}, nameOf(first)), " takes the lead.");
  shown = { instance, leader: first?.player ?? null };
  if (table.status.state === "live") {
    const when = answer.window === "all_time" ? "" : ` · ${instanceLabel(answer.window)}`;
    write(by("state"), `Live · ${countText(answer.total, definition)}${when}`);
  }
});

table.addEventListener("rankd-player", ({ detail }) => {
  if (detail.entry) courses.note(detail.entry);
  you?.tell(detail);
  you?.refreshSoon();
  spread?.show();
});

table.addEventListener("rankd-select", ({ detail }) => card.open(detail.entry));

// The definition says which windows and scopes there are, so it comes first.
try {
  const tell = (status) => connection.show(status);
  begin(await insist(() => page.source.get(boardPath(board), {}), { tell, hold: (pause) => (waiting = pause) }));
  waiting = table;
  point();
  if (page.me()) table.setAttribute("player", page.me());
  table.setAttribute("board", board);
} catch (problem) {
  if (!problem.isFinal) throw problem;
  connection.show({ state: "refused" });
  miss({ problem });
}
