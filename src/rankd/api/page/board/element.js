// <rankd-board board="arcade" window="weekly" scope="country:BR" player="alice" limit="10">: a live table, anywhere.
//
//   attributes → Source (definition) → Feed (top and, where it can be, the player) → Standings → Rows
//
// It dispatches events: rankd-update, rankd-player, rankd-status, rankd-select.

const TOP_COUNT = 10; // of a live topic
const PAGE_COUNT = 25;
const ROWS_MAX = 1_000; // what one read gives; rows beyond it do not move by themselves
const REFRESH_MS = 4_000; // of rows below the live ones, and of a player without a topic
const REFRESH_SOON_MS = 120;
const REFRESH_PAUSE_MS = 1_000; // between two of them, however much happens
const HIDDEN_MS = 30_000;
const SCORE_LENGTH_USUAL = 12; // characters; longer ones leave little room for names on a phone
const STATES = {
  connecting: "Connecting…",
  live: "Live",
  polling: "Refreshed every few seconds",
  lost: "Connection lost",
  refused: "Not available",
};

const peopleSheet = new CSSStyleSheet();
peopleSheet.replaceSync(PEOPLE_CSS);
const boardSheet = new CSSStyleSheet();
boardSheet.replaceSync(BOARD_CSS);

class RankdBoard extends HTMLElement {
  static observedAttributes = ["src", "board", "window", "scope", "limit", "player", "avatars", "selectable"];

  #root = this.attachShadow({ mode: "open" });
  #parts = {};
  #rows = null;
  #feed = null;
  #standings = null;
  #source = null;
  #own = null; // the player's own entry, null when they do not stand here
  #wanted = TOP_COUNT;
  #run = null; // an AbortController: what is under way for these attributes
  #isDue = false;
  #origins = []; // from where avatars may come
  #refreshing = null;
  #refreshed = 0;
  #hiding = null;

  definition = null;
  status = { state: "connecting" };
  token = null; // for servers whose reads are not public; set it before the element is connected

  connectedCallback() {
    if (!this.#rows) this.#build();
    document.addEventListener("visibilitychange", this.#seen);
    this.#restart();
  }

  disconnectedCallback() {
    document.removeEventListener("visibilitychange", this.#seen);
    clearTimeout(this.#hiding);
    this.#stop();
  }

  attributeChangedCallback(name, before, now) {
    if (before === now || !this.isConnected) return;
    if (name === "player" && this.#standings) this.#watchAnew();
    else this.#restart();
  }

  get entries() {
    return this.#standings?.entries ?? [];
  }
  get answer() {
    return this.#standings?.answer ?? null;
  }
  get own() {
    return this.#own;
  }
  // Its source, for further reads.
  get source() {
    return this.#source ?? new Source(this.#origin, this.token);
  }
  moved(entry) {
    return this.#standings?.moved(entry) ?? 0;
  }
  retry() {
    if (this.status.state === "refused") this.#restart();
    else this.#feed?.retry();
  }

  get #origin() {
    return new URL(this.getAttribute("src") ?? import.meta.url, document.baseURI).origin;
  }
  get #where() {
    return { window: this.getAttribute("window"), scope: this.getAttribute("scope") };
  }
  get #player() {
    return this.getAttribute("player") || null;
  }
  get #choice() {
    return { isSelectable: this.hasAttribute("selectable"), select: (entry) => this.#say("rankd-select", { entry }) };
  }
  get #board() {
    return this.getAttribute("board") ?? "";
  }

  #build() {
    const caption = make("caption", { part: "caption" });
    const head = make(
      "thead",
      {},
      make(
        "tr",
        {},
        make("th", { scope: "col", class: "rank" }, "Rank"),
        make("th", { scope: "col", class: "player" }, "Player"),
        make("th", { scope: "col", class: "when" }, "Reached"),
        make("th", { scope: "col", class: "score" }, "Score"),
      ),
    );
    const body = make("tbody", { part: "body" });
    const own = make("tfoot", { hidden: true });
    const empty = make("div", { class: "empty", part: "empty", hidden: true });
    const total = make("span", { class: "total", part: "total" });
    const status = make("span", { class: "status", part: "status" });
    const more = make("button", { class: "more", part: "more", type: "button", hidden: true }, "More");
    more.addEventListener("click", () => this.more());
    const table = make("table", { part: "table" }, caption, head, body, own);
    const foot = make("div", { class: "foot", part: "foot" }, status, total, more);
    this.#parts = { table, caption, head, body, own, empty, total, status, more };
    this.#root.adoptedStyleSheets = [peopleSheet, boardSheet];
    this.#root.append(make("div", { class: "frame", part: "frame" }, table, empty, foot));
    this.#rows = new Rows(body, this.#choice);
    this.#rows.bones();
    write(status, STATES.connecting);
  }

  // Several attributes set one after the other are one change.
  #restart() {
    if (this.#isDue) return;
    this.#isDue = true;
    queueMicrotask(() => {
      this.#isDue = false;
      if (!this.isConnected) return;
      this.#stop();
      if (this.#board) this.#begin();
    });
  }

  // Highlights another player; the rows stay.
  #watchAnew() {
    this.#feed?.stop();
    this.#own = null;
    this.#parts.own.hidden = true;
    this.#show();
    this.#watch(this.#run.signal);
  }

  #stop() {
    this.#run?.abort();
    this.#feed?.stop();
    clearTimeout(this.#refreshing);
    this.#feed = null;
    this.#standings = null;
    this.#own = null;
  }

  async #begin() {
    const run = (this.#run = new AbortController());
    const { signal } = run;
    const limit = Number.parseInt(this.getAttribute("limit") ?? "", 10);
    this.#wanted = Math.min(Math.max(limit || TOP_COUNT, 1), ROWS_MAX);
    this.#origins = (this.getAttribute("avatars") ?? "").split(/\s+/).filter(Boolean);
    this.#source = new Source(this.#origin, this.token);
    const body = make("tbody", { part: "body" });
    this.#parts.body.replaceWith(body);
    this.#parts.body = body;
    this.#rows = new Rows(body, this.#choice);
    this.#rows.bones();
    set(this.#parts.table, { "aria-busy": "true" });
    for (const part of ["own", "empty", "more"]) this.#parts[part].hidden = true;
    this.#parts.total.textContent = "";
    this.#note({ state: "connecting" });
    try {
      const ask = () => this.#source.get(boardPath(this.#board), {}, signal);
      const hold = (pause) => (this.#feed = pause);
      this.definition = await insist(ask, { tell: (status) => this.#note(status), hold, signal });
    } catch (problem) {
      if (!signal.aborted) this.#note({ state: "refused", problem });
      return;
    }
    if (signal.aborted) return;
    this.#standings = new Standings(this.definition);
    this.#watch(signal);
  }

  #watch(signal) {
    const { window, scope } = this.#where;
    const top = `top:${this.#board}${window || scope ? `@${window ?? ""}` : ""}${scope ? `@${scope}` : ""}`;
    const topics = this.#player && this.#isUsual ? [top, `player:${this.#board}:${this.#player}`] : [top];
    this.#feed = new Feed(this.#source, topics, {
      poll: () => this.#poll(signal),
      take: (type, data) => this.#take(type, data, top),
      tell: (status) => this.#note(status),
    });
    this.#feed.start();
    if (document.hidden) this.#seen();
    this.#refreshLater(REFRESH_SOON_MS);
  }

  // A player's topic is about the board's first window and everybody.
  get #isUsual() {
    const { window, scope } = this.#where;
    return (!window || window === windowNames(this.definition)[0]) && (!scope || scope === "global");
  }

  async #poll(signal) {
    const page = await this.#source.get(boardPath(this.#board, "/top"), { ...this.#where, limit: TOP_COUNT }, signal);
    this.#standings.snapshot(page);
    this.#show();
    await this.#readOwn(signal);
  }

  #take(type, data, top) {
    if (data.topic !== top) return this.#takeOwn(type, data);
    if (type === "reset") return data.code ? this.#refuse(data) : null; // a snapshot follows
    if (this.status.state === "refused") return this.#restart(); // it is back, and may be another one
    if (type === "snapshot") this.#standings.snapshot(data);
    else if (type !== "change") return;
    else if (this.#standings.change(data)) this.#refreshLater(REFRESH_SOON_MS);
    this.#show();
  }

  #takeOwn(type, data) {
    if (type === "snapshot") this.#own = data.rank === null ? null : data;
    else if (type === "change") this.#own = data.set[0] ?? (data.gone.includes(this.#player) ? null : this.#own);
    else return;
    const { passed = [], overtaken_by: overtakenBy = [] } = data;
    this.#show();
    this.#say("rankd-player", { entry: this.#own, passed, overtaken_by: overtakenBy });
  }

  // The board was deleted; the topic reports if it is defined again.
  #refuse({ code, detail }) {
    this.#standings.clear();
    this.#note({ state: "refused", problem: new Refused(404, { code, detail }) });
  }

  // Rows below the live ones, and a player without a topic, are polled.
  #refreshLater(ms = REFRESH_MS) {
    clearTimeout(this.#refreshing);
    const { signal } = this.#run;
    const wait = Math.max(ms, this.#refreshed + REFRESH_PAUSE_MS - Date.now());
    this.#refreshing = setTimeout(async () => {
      this.#refreshed = Date.now();
      try {
        if (this.#standings?.answer && !document.hidden && this.status.state !== "lost") await this.#refresh(signal);
      } catch {
        // The feed detects and reports a lost connection.
      }
      if (!signal.aborted) this.#refreshLater();
    }, wait);
  }

  async #refresh(signal) {
    const wanted = this.#wanted;
    const count = Math.min(wanted - TOP_COUNT, ROWS_MAX);
    if (count > 0 && this.#standings.topCount === TOP_COUNT) {
      const query = { ...this.#named, from: TOP_COUNT + 1, to: TOP_COUNT + count };
      const page = await this.#source.get(boardPath(this.#board, "/range"), query, signal);
      if (signal.aborted || wanted !== this.#wanted) return; // more was asked for meanwhile
      this.#standings.renewBelow(page.entries, page.next);
      this.#show();
    }
    if (!this.#isUsual || this.status.state !== "live") await this.#readOwn(signal);
  }

  async #readOwn(signal) {
    const player = this.#player;
    if (!player) return;
    const body = { players: [player] };
    const { entries } = await this.#source.post(boardPath(this.#board, "/ranks"), this.#where, body, signal);
    if (signal.aborted || player !== this.#player) return; // another was chosen meanwhile
    const [entry = null] = entries;
    const isOther = JSON.stringify(entry) !== JSON.stringify(this.#own);
    this.#own = entry;
    if (!isOther) return;
    this.#show();
    this.#say("rankd-player", { entry, passed: [], overtaken_by: [] });
  }

  // The instance that is shown, by its full name: a page and the one after it are about the same week.
  get #named() {
    const { window, scope } = this.#standings.answer;
    return { window, scope };
  }

  // Shows the next page, by the cursor of the last.
  async more() {
    const standings = this.#standings;
    const { more } = this.#parts;
    const { signal } = this.#run;
    more.disabled = true;
    try {
      let cursor = standings.next;
      if (!cursor) {
        const query = { ...this.#named, limit: TOP_COUNT };
        const page = await this.#source.get(boardPath(this.#board, "/top"), query, signal);
        standings.snapshot(page);
        cursor = page.next;
      }
      if (cursor) {
        const query = { cursor, limit: PAGE_COUNT };
        const page = await this.#source.get(boardPath(this.#board, "/top"), query, signal);
        standings.addBelow(page.entries, page.next);
        this.#wanted = standings.entries.length;
      }
      this.#show();
    } catch (problem) {
      if (!signal.aborted) this.#note({ ...this.status, problem });
    } finally {
      more.disabled = false;
    }
  }

  #show() {
    const answer = this.#standings?.answer;
    if (!answer) return;
    const { table, total, empty, more, own } = this.#parts;
    const entries = this.#standings.entries.slice(0, Math.max(this.#wanted, 1));
    const { decimals } = this.definition;
    const isLess = this.definition.order === "asc";
    const origins = this.#origins;
    const how = (entry) => {
      const moved = this.#standings.moved(entry);
      return { decimals, isLess, origins, moved, isOwn: entry.player === this.#player, isNews: moved === null };
    };
    this.#rows.show(entries, how);
    const shown = this.#own ? [...entries, this.#own] : entries;
    const length = Math.max(0, ...shown.map((entry) => scoreText(entry.score, decimals).length));
    table.classList.toggle("long", length > SCORE_LENGTH_USUAL);
    table.style.setProperty("--score-length", length);
    table.classList.toggle("timed", entries.some((entry) => entry.reached_at !== null));
    set(table, { "aria-busy": null });
    this.#caption(answer);
    write(total, countText(answer.total, this.definition));
    empty.hidden = entries.length > 0;
    if (!entries.length) {
      empty.replaceChildren(make("strong", {}, "Nobody stands here yet."), "The first score takes first place.");
    }
    this.#parts.head.hidden = entries.length === 0;
    more.hidden = answer.total <= entries.length;
    this.#showOwn(entries, own, how);
    this.#say("rankd-update", { entries, answer, definition: this.definition });
  }

  #caption({ window, scope }) {
    const { caption, table } = this.#parts;
    const isHidden = this.hasAttribute("untitled");
    const where = `${windowLabel(this.getAttribute("window") ?? window.split(":")[0])} · ${scopeLabel(scope)}`;
    if (caption.dataset.text !== where) {
      caption.dataset.text = where;
      caption.replaceChildren(make("bdi", {}, this.definition.title), " ", make("span", {}, where));
    }
    caption.classList.toggle("unseen", isHidden);
    table.classList.toggle("untitled", isHidden);
    const people = this.definition.team ? "Team" : "Player";
    write(this.#parts.head.rows[0].cells[1], people);
  }

  // The player's own line, where it is not among those shown.
  #showOwn(entries, foot, how) {
    const entry = this.#own;
    foot.hidden = !entry || entries.some((one) => one.player === entry.player);
    if (foot.hidden) return;
    const row = foot.row?.player === entry.player ? foot.row : new Row(entry, this.#choice);
    row.show(entry, { ...how(entry), moved: 0, isOwn: true });
    if (foot.row !== row) foot.replaceChildren(row.element);
    foot.row = row;
  }

  #note(status) {
    this.status = status;
    const { status: shown, table, empty, total } = this.#parts;
    shown.dataset.state = status.state;
    write(shown, STATES[status.state]);
    if (status.state === "refused") {
      this.#rows.clear();
      set(table, { "aria-busy": null });
      empty.hidden = false;
      empty.replaceChildren(make("strong", {}, STATES.refused), status.problem.message);
      this.#parts.more.hidden = true;
      total.textContent = "";
    }
    this.#say("rankd-status", status);
  }

  #say(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }

  #seen = () => {
    clearTimeout(this.#hiding);
    if (document.hidden) this.#hiding = setTimeout(() => this.#feed?.pause(), HIDDEN_MS);
    else this.#feed?.resume();
  };
}

if (!customElements.get("rankd-board")) customElements.define("rankd-board", RankdBoard);

export {
  Feed, Refused, RankdBoard, Source,
  boardPath, countText, countryName, draw, insist, instanceLabel, isCalm, make, makeAvatar, makeCountry, makeName,
  momentText, nameOf, numberText, peopleSheet, percentText, rankText, scopeLabel, scoreText, set, shortScoreText,
  windowLabel, windowNames, write,
};
