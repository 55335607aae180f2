// Settings stored in this browser: the theme, and the user's player id. Without storage they last as long as the page.

const held = new Map();
export const remembered = (name) => {
  try {
    return localStorage.getItem(name);
  } catch {
    return held.get(name) ?? null;
  }
};
export const remember = (name, value) => {
  held.set(name, value);
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    // It holds for this page.
  }
};

// Teams are chosen board by board; a person is the same on all of them.
const nameOfMe = (definition) => (definition.team ? `rankd-team:${definition.id}` : "rankd-me");
export const me = (definition) => remembered(nameOfMe(definition)) || null;
export const setMe = (definition, player) => remember(nameOfMe(definition), player);

// The button for dark and light; `apply` gets the chosen theme, null for the system's.
export const setUpTheme = (apply = () => {}) => {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => document.documentElement.dataset.theme ?? null;
  const isDark = () => (chosen() ?? (system.matches ? "dark" : "light")) === "dark";
  const show = () => {
    button.setAttribute("aria-pressed", String(isDark()));
    apply(chosen());
  };
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    remember("rankd-theme", theme);
    show();
  });
  system.addEventListener("change", show);
  show();
};

export const avatarOrigins = () => document.querySelector('meta[name="rankd-avatars"]').content;
