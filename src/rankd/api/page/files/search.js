// Finding a player: by the start of a name or an id, with where they stand here.
import { boardPath, make, makeAvatar, makeCountry, makeName, numberText, set } from "/rankd-board.js";

const PAUSE_MS = 180; // after the last letter
const FOUND_MAX = 8;

export class Search {
  #input = document.getElementById("search");
  #list = document.getElementById("found");
  #page;
  #timer = null;
  #asked = 0;
  #options = [];
  #active = -1;

  // `page` has board, source, definition, origins, where and open(entry).
  constructor(page) {
    this.#page = page;
    const what = page.definition.team ? "Find a team" : "Find a player";
    set(this.#input, { placeholder: what });
    this.#input.addEventListener("input", () => this.#later());
    this.#input.addEventListener("focus", () => this.#options.length && this.#toggle(true));
    this.#input.addEventListener("keydown", (event) => this.#press(event));
    addEventListener("pointerdown", (event) => event.target.closest?.(".search") || this.#toggle(false));
    this.#input.addEventListener("blur", (event) => this.#list.contains(event.relatedTarget) || this.#toggle(false));
    this.#list.addEventListener("pointerdown", (event) => event.preventDefault());
    addEventListener("keydown", (event) => this.#shortcut(event));
  }

  focus() {
    this.#input.focus();
    this.#input.select();
  }

  #shortcut(event) {
    const isTyping = event.target.matches?.("input, select, textarea") || document.querySelector("dialog[open]");
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.focus();
  }

  #later() {
    clearTimeout(this.#timer);
    this.#asked += 1; // what is on its way is about another text
    const text = this.#input.value.trim();
    if (!text) return this.#show([]);
    this.#timer = setTimeout(() => this.#find(text), PAUSE_MS);
  }

  async #find(text) {
    const asked = (this.#asked += 1);
    try {
      const people = await this.#people(text);
      if (asked === this.#asked) this.#show(people, text);
    } catch {
      if (asked === this.#asked) this.#say("Search does not answer. Try again in a moment.");
    }
  }

  // A player without a profile is found by the whole id.
  async #people(text) {
    const { board, source, definition, where } = this.#page;
    const query = { search: text, limit: FOUND_MAX };
    const { players } = definition.team ? { players: [] } : await source.get("/v1/players", query);
    const ids = [...new Set([...players.map((profile) => profile.player), text])];
    const ranks = await source.post(boardPath(board, "/ranks"), where(), { players: ids });
    const standing = new Map(ranks.entries.map((entry) => [entry.player, entry]));
    const known = new Map(players.map((profile) => [profile.player, profile]));
    const found = ids.filter((id) => standing.has(id) || known.has(id));
    const people = found.map((id) => standing.get(id) ?? { rank: null, ...known.get(id) });
    return people.sort((a, b) => (a.rank ?? Infinity) - (b.rank ?? Infinity)).slice(0, FOUND_MAX);
  }

  #show(people, text = "") {
    if (!people.length && text) return this.#say(`Nobody is called “${text}”.`);
    this.#options = people.map((entry, at) => {
      const place = entry.rank === null ? "no score here" : `#${numberText(entry.rank)}`;
      const option = make(
        "li",
        { role: "option", id: `found-${at}`, "aria-selected": "false" },
        makeAvatar(entry, this.#page.origins),
        makeName(entry),
        makeCountry(entry.country),
        make("span", { class: "place" }, place),
      );
      option.addEventListener("click", () => this.#take(entry));
      return { option, entry };
    });
    this.#list.replaceChildren(...this.#options.map(({ option }) => option));
    this.#mark(-1);
    this.#toggle(people.length > 0);
  }

  #say(text) {
    this.#options = [];
    this.#list.replaceChildren(make("li", { class: "nobody", role: "option", "aria-disabled": "true" }, text));
    this.#toggle(true);
  }

  #toggle(isOpen) {
    this.#list.hidden = !isOpen;
    set(this.#input, { "aria-expanded": String(isOpen) });
    if (!isOpen) this.#mark(-1);
  }

  #mark(at) {
    this.#active = at;
    this.#options.forEach(({ option }, index) => set(option, { "aria-selected": String(index === at) }));
    set(this.#input, { "aria-activedescendant": at < 0 ? null : `found-${at}` });
    this.#options[at]?.option.scrollIntoView({ block: "nearest" });
  }

  #press(event) {
    const count = this.#options.length;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && count) {
      event.preventDefault();
      this.#toggle(true);
      this.#mark((this.#active + step + count) % count);
    } else if (event.key === "Enter" && count) {
      event.preventDefault();
      this.#take(this.#options[Math.max(this.#active, 0)].entry);
    } else if (event.key === "Escape") {
      if (this.#list.hidden) this.#input.value = "";
      this.#show([]);
    }
  }

  #take(entry) {
    this.#input.value = "";
    this.#show([]);
    this.#page.open(entry);
  }
}
