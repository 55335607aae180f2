// The first three, on their steps. A place that nobody has taken is shown as open.
import {
  isCalm, make, makeAvatar, makeCountry, makeName, numberText, scoreText, set, shortScoreText, write,
} from "/rankd-board.js";

const MOVE_MS = 550;
const SCORE_LENGTH_MAX = 15;

export class Podium {
  #section = document.getElementById("podium");
  #list = make("ol", { role: "list" });
  #people = new Map();
  #origins;
  #select;

  constructor(origins, select) {
    this.#origins = origins;
    this.#select = select;
    this.#section.append(this.#list);
    this.wait();
  }

  wait() {
    this.#people.clear();
    this.#section.hidden = false;
    this.#list.replaceChildren(...[1, 2, 3].map((step) => this.#step(step, "waiting")));
  }

  show(entries, decimals) {
    this.#section.hidden = entries.length === 0;
    const first = entries.slice(0, 3);
    const moves = !isCalm() && this.#people.size > 0;
    const places = [...this.#people].map(([player, { person }]) => [player, person.getBoundingClientRect()]);
    const before = new Map(places);
    const focused = document.activeElement;
    const people = new Map();
    const steps = [1, 2, 3].map((number, at) => {
      const entry = first[at];
      if (!entry) return this.#step(number, "open");
      const known = this.#people.get(entry.player) ?? this.#person(entry);
      people.set(entry.player, known);
      this.#describe(known, entry, decimals);
      const step = this.#step(number, "taken", numberText(entry.rank));
      step.prepend(known.person);
      return step;
    });
    this.#list.replaceChildren(...steps);
    if ([...people.values()].some(({ person }) => person === focused)) focused.focus({ preventScroll: true });
    this.#people = people;
    for (const [player, { person }] of moves ? people : []) this.#move(person, before.get(player));
  }

  #step(number, kind, rank = String(number)) {
    const plinth = make("div", { class: "plinth", "aria-hidden": "true" }, make("span", {}, rank));
    return make("li", { class: `step step-${number} ${kind}` }, plinth);
  }

  #person(entry) {
    const face = make("span", { class: "face" });
    const name = make("span", { class: "called" });
    const score = make("span", { class: "points" });
    const place = make("span", { class: "unseen" });
    const person = make("button", { type: "button", class: "person" }, place, face, name, score);
    const known = { person, place, face, name, score, shown: "" };
    person.addEventListener("click", () => this.#select(known.entry));
    return known;
  }

  #describe(known, entry, decimals) {
    known.entry = entry;
    const shown = JSON.stringify([entry.name, entry.avatar_url, entry.country]);
    if (shown !== known.shown) {
      known.shown = shown;
      known.face.replaceChildren(makeAvatar(entry, this.#origins));
      known.name.replaceChildren(makeName(entry), makeCountry(entry.country) ?? "");
    }
    write(known.place, `Rank ${numberText(entry.rank)}: `);
    const score = scoreText(entry.score, decimals);
    const points = score.length > SCORE_LENGTH_MAX ? shortScoreText(entry.score, decimals) : score;
    set(write(known.score, points), { title: score });
    known.score.style.setProperty("--score-length", points.length);
    set(known.person, { "data-player": entry.player });
  }

  #move(person, from) {
    const to = person.getBoundingClientRect();
    const [x, y] = from ? [from.left - to.left, from.top - to.top] : [0, 16];
    if (Math.abs(x) < 1 && Math.abs(y) < 1) return;
    const start = { opacity: from ? 1 : 0, transform: `translate(${x}px, ${y}px)` };
    const options = { duration: MOVE_MS, easing: "cubic-bezier(0.2, 0.7, 0.2, 1)" };
    person.animate([start, { opacity: 1, transform: "none" }], options);
  }
}
