// Short news that come and go; they are read out when there is a pause.
import { isCalm, make } from "/rankd-board.js";

const SHOWN_MS = 6_000;
const TOASTS_MAX = 3;

export const toast = (kind, ...content) => {
  const region = document.getElementById("toasts");
  const shown = make("div", { class: `toast ${kind}` }, ...content);
  while (region.childElementCount >= TOASTS_MAX) region.firstElementChild.remove();
  region.append(shown);
  const leave = () => {
    if (isCalm()) return shown.remove();
    shown.animate({ opacity: 0, transform: "translateY(0.5rem)" }, { duration: 250, fill: "forwards" }).finished.then(
      () => shown.remove(),
      () => shown.remove(),
    );
  };
  let timer = setTimeout(leave, SHOWN_MS);
  shown.addEventListener("pointerenter", () => clearTimeout(timer));
  shown.addEventListener("pointerleave", () => (timer = setTimeout(leave, SHOWN_MS / 2)));
  const start = { opacity: 0, transform: "translateY(0.5rem)" };
  if (!isCalm()) shown.animate([start, {}], { duration: 250, easing: "ease-out" });
};
