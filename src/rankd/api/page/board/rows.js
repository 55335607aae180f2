// The table's rows: one for each player, kept while the player is shown, moved to where they belong now.

const MOVE_MS = 450;
const MOVES_MAX = 80; // animated at once; rows that come from far away appear in place
const FLASH_MS = 1_600;
const BONES = 10;

class Row {
  #shown = {};
  #parts;

  constructor(entry, { isSelectable, select }) {
    this.player = entry.player;
    const rank = make("td", { class: "rank", part: "rank" });
    const who = make(isSelectable ? "button" : "span", { class: "who", part: "player" });
    if (isSelectable) who.type = "button";
    const score = make("td", { class: "score", part: "score" });
    const when = make("td", { class: "when", part: "when" });
    this.#parts = { rank, who, score, when };
    const head = make("th", { scope: "row", class: "player" }, who);
    this.element = make("tr", { part: "row", "data-player": entry.player }, rank, head, when, score);
    if (isSelectable) this.element.addEventListener("click", () => select(this.entry));
  }

  focus() {
    this.#parts.who.focus({ preventScroll: true });
  }
  get isFocused() {
    return this.element.getRootNode().activeElement === this.#parts.who;
  }

  // Writes only what has changed, so that selection, screen readers and hovering are not disturbed.
  show(entry, { decimals, isLess, origins, moved, isOwn }) {
    const { rank, who, score, when } = this.#parts;
    const before = this.entry;
    this.entry = entry;
    const person = JSON.stringify([entry.name, entry.avatar_url, entry.country]);
    if (person !== this.#shown.person || origins !== this.#shown.origins) {
      who.replaceChildren(makeAvatar(entry, origins), makeName(entry), makeCountry(entry.country) ?? "");
    }
    if (entry.rank !== before?.rank || entry.rank_min !== before?.rank_min || moved !== this.#shown.moved) {
      rank.replaceChildren(make("span", { class: "place" }, rankText(entry)), makeMoved(moved) ?? "");
    }
    write(score, scoreText(entry.score, decimals));
    write(when, entry.reached_at === null ? "" : whenText(entry.reached_at));
    set(this.element, { "data-rank": entry.rank, "data-own": isOwn, "aria-current": isOwn ? "true" : null });
    this.element.part.toggle("own", isOwn);
    this.#shown = { person, origins, moved };
    // A player who is pushed down, or decays, moves without a flash: most of the table would flash with every score.
    if (before && (isLess ? entry.score < before.score : entry.score > before.score)) this.flash();
  }

  flash() {
    clearTimeout(this.flashing);
    this.element.dataset.flash = "";
    this.flashing = setTimeout(() => delete this.element.dataset.flash, FLASH_MS);
  }
}

class Rows {
  #rows = new Map();
  #body;
  #options;

  constructor(body, options) {
    this.#body = body;
    this.#options = options; // {isSelectable, select}
    body.addEventListener("keydown", (event) => this.#step(event));
  }

  get count() {
    return this.#rows.size;
  }

  bones() {
    this.#rows.clear();
    const bone = (kind) => make("td", { class: kind }, make("span", { class: "bone" }));
    const cells = () => ["rank", "who", "when", "score"].map(bone);
    const row = () => make("tr", { "aria-hidden": "true", class: "bones" }, ...cells());
    this.#body.replaceChildren(...Array.from({ length: BONES }, row));
  }

  clear() {
    this.#rows.clear();
    this.#body.replaceChildren();
  }

  // `how(entry)` says what a row needs to know beside its entry.
  show(entries, how) {
    const isFirst = this.#rows.size === 0;
    const order = [...this.#rows.keys()];
    const moves = !isFirst && !isCalm() && this.#isOther(order, entries);
    const before = moves ? this.#places() : null;
    const focused = [...this.#rows.values()].find((row) => row.isFocused);

    const kept = new Map();
    const come = [];
    for (const entry of entries) {
      let row = this.#rows.get(entry.player);
      if (!row) {
        row = new Row(entry, this.#options);
        come.push(row);
      }
      row.show(entry, how(entry));
      kept.set(entry.player, row);
    }
    this.#rows = kept;
    this.#arrange([...kept.values()].map((row) => row.element));
    if (focused && kept.has(focused.player) && !focused.isFocused) focused.focus();
    if (!isFirst) for (const row of come) if (how(row.entry).isNews) row.flash();
    if (before) this.#move(before);
  }

  #isOther(order, entries) {
    return order.length !== entries.length || entries.some((entry, at) => entry.player !== order[at]);
  }

  #arrange(elements) {
    let place = this.#body.firstElementChild;
    const wanted = new Set(elements);
    for (const element of elements) {
      while (place && !wanted.has(place)) {
        const gone = place;
        place = place.nextElementSibling;
        gone.remove();
      }
      if (element === place) place = place.nextElementSibling;
      else if (this.#body.moveBefore && element.isConnected) this.#body.moveBefore(element, place);
      else this.#body.insertBefore(element, place);
    }
    while (place) {
      const gone = place;
      place = place.nextElementSibling;
      gone.remove();
    }
  }

  #places() {
    const { top } = this.#body.getBoundingClientRect();
    return new Map([...this.#rows].map(([player, row]) => [player, row.element.getBoundingClientRect().top - top]));
  }

  // First, last, invert, play: rows are where they belong, and seem to come from where they were.
  #move(before) {
    for (const row of this.#rows.values()) row.moving?.cancel();
    let count = 0;
    for (const [player, top] of this.#places()) {
      const row = this.#rows.get(player);
      const from = before.get(player);
      if (Math.abs(from - top) < 1 || count >= MOVES_MAX) continue;
      count += 1;
      const isNew = from === undefined;
      const start = { opacity: isNew ? 0 : 1, transform: `translateY(${isNew ? "0.75rem" : `${from - top}px`})` };
      const easing = "cubic-bezier(0.2, 0.7, 0.2, 1)";
      row.moving = row.element.animate([start, { opacity: 1, transform: "none" }], { duration: MOVE_MS, easing });
    }
  }

  #step(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = [...this.#rows.values()];
    const at = rows.findIndex((row) => row.isFocused);
    const next = rows[at + step];
    if (at < 0 || !next) return;
    event.preventDefault();
    next.focus();
    next.element.scrollIntoView({ block: "nearest" });
  }
}
