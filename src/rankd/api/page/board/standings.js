// The known entries of one instance: the first places, which are live, and requested ones below.

const bytes = new TextEncoder();
const byBytes = (left, right) => {
  const [a, b] = [bytes.encode(left), bytes.encode(right)];
  for (let at = 0; at < Math.min(a.length, b.length); at += 1) if (a[at] !== b[at]) return a[at] - b[at];
  return a.length - b.length;
};
// Ranks say it all, but where equal scores share one the board's own rule for ties decides.
const standingOrder = (ties) => (a, b) => {
  if (a.rank !== b.rank) return a.rank - b.rank;
  let before = 0;
  if (ties === "earliest") before = (a.reached_at ?? 0) - (b.reached_at ?? 0);
  if (ties === "latest") before = (b.reached_at ?? 0) - (a.reached_at ?? 0);
  if (ties === "value") before = (b.tiebreak ?? 0) - (a.tiebreak ?? 0);
  return before || byBytes(a.player, b.player);
};

class Standings {
  #order;
  #top = new Map();
  #below = new Map();
  #first = new Map(); // where a player was when seen first
  #isFresh = true; // no player was shown yet

  constructor(definition) {
    this.#order = standingOrder(definition.ties);
    this.answer = null; // what the last message said of the instance: window, scope, total, position, as_of
    this.next = null; // the cursor behind what is shown, as long as it is true
  }

  get topCount() {
    return this.#top.size;
  }
  get belowCount() {
    return this.#below.size;
  }
  get entries() {
    const below = [...this.#below.values()].filter((entry) => !this.#top.has(entry.player));
    return [...[...this.#top.values()].sort(this.#order), ...below.sort(this.#order)];
  }

  snapshot({ entries, next, ...answer }) {
    if (this.answer && (this.answer.window !== answer.window || this.answer.scope !== answer.scope)) this.clear();
    this.#top = new Map(entries.map((entry) => [entry.player, entry]));
    this.answer = answer;
    this.next = this.#below.size ? this.next : next;
    this.#see(entries, this.#isFresh);
  }

  // Returns whether a player left the first places, and may now stand below.
  change({ set: changed, gone, total, position }) {
    if (!this.answer) return false;
    for (const player of gone) this.#top.delete(player);
    for (const entry of changed) this.#top.set(entry.player, entry);
    this.answer = { ...this.answer, total, position };
    if (!this.#below.size) this.next = null;
    this.#see(changed, this.#isFresh);
    return gone.length > 0 || changed.length > 0;
  }

  // Replaces the places right below the first ones; those further down stay unchanged.
  renewBelow(entries, next) {
    const last = entries.at(-1)?.rank ?? Infinity;
    const others = [...this.#below.values()].filter((entry) => entry.rank > last);
    this.#below = new Map([...entries, ...others].map((entry) => [entry.player, entry]));
    for (const entry of entries) this.#below.set(entry.player, entry);
    if (!others.length) this.next = next;
    this.#see(entries, true);
  }
  addBelow(entries, next) {
    for (const entry of entries) this.#below.set(entry.player, entry);
    this.next = next;
    this.#see(entries, true);
  }

  clear() {
    this.#top.clear();
    this.#below.clear();
    this.#first.clear();
    this.#isFresh = true;
    this.answer = null;
    this.next = null;
  }

  // Places gained since the player was seen first; null for one who came in from below.
  moved(entry) {
    const first = this.#first.get(entry.player);
    return first === null ? null : (first ?? entry.rank) - entry.rank;
  }

  #see(entries, isFirstLook) {
    for (const entry of entries)
      if (!this.#first.has(entry.player)) this.#first.set(entry.player, isFirstLook ? entry.rank : null);
    this.#isFresh &&= entries.length === 0;
  }
}
