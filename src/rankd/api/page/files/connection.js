// How the connection is: a word beside the title, and a banner when it is lost.
import { make, set, write } from "/rankd-board.js";

const WORDS = {
  connecting: "Connecting…",
  live: "Live",
  polling: "Refreshed every few seconds",
  lost: "Offline",
  refused: "Not available",
};
const SHOWN_AFTER_MS = 700; // a short break is no news

export class Connection {
  #banner = document.getElementById("banner");
  #state = document.getElementById("state");
  #retry;
  #timer = null;
  #since = null;

  constructor(retry) {
    this.#retry = retry;
    addEventListener("online", () => retry());
  }

  show({ state, at }) {
    this.#state.dataset.state = state;
    write(this.#state, WORDS[state]);
    clearInterval(this.#timer);
    if (state !== "lost") {
      this.#since = null;
      this.#banner.hidden = true;
      this.#banner.replaceChildren();
      return;
    }
    this.#since ??= Date.now();
    const tick = () => this.#count(at);
    this.#timer = setInterval(tick, 250);
    tick();
  }

  // Only the first sentence is read out; the seconds would be a nuisance.
  #count(at) {
    if (Date.now() - this.#since < SHOWN_AFTER_MS) return;
    if (this.#banner.hidden) {
      const again = make("button", { type: "button" }, "Try now");
      again.addEventListener("click", () => this.#retry());
      this.#banner.replaceChildren(
        make("span", {}, "Connection lost. What you see may be old."),
        make("span", { class: "countdown", "aria-hidden": "true" }),
        again,
      );
      set(this.#banner, { hidden: false });
    }
    const seconds = Math.ceil((at - Date.now()) / 1_000);
    write(this.#banner.querySelector(".countdown"), seconds > 0 ? `Next try in ${seconds} s.` : "Trying…");
  }
}
