// Before anything is drawn: the theme that was chosen here, so that the page does not flash in the other one.
"use strict";
try {
  const chosen = localStorage.getItem("rankd-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch {
  // Nothing may be kept: the system's theme it is.
}
