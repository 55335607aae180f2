// Elements are created one by one, without markup in strings, so that text of players never becomes markup.

const SVG = "http://www.w3.org/2000/svg";
const set = (element, attributes) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  return element;
};
const make = (name, attributes = {}, ...children) => {
  const element = set(document.createElement(name), attributes);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};
const draw = (name, attributes = {}, ...children) => {
  const element = set(document.createElementNS(SVG, name), attributes);
  element.append(...children);
  return element;
};
const write = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
  return element;
};

// Initials on a colour of their own; over them the picture, if it may be loaded and can be.
const makeAvatar = (entry, origins = []) => {
  const avatar = make("span", { class: "avatar", part: "avatar", "aria-hidden": "true" }, initialsOf(entry));
  avatar.style.setProperty("--hue", hueOf(entry.player));
  const address = avatarAddress(entry.avatar_url, origins);
  if (address) {
    const picture = make("img", { alt: "", loading: "lazy", decoding: "async", referrerpolicy: "no-referrer" });
    picture.addEventListener("error", () => picture.remove());
    picture.src = address;
    avatar.append(picture);
  }
  return avatar;
};
// `bdi` keeps a name's direction, and any override in it, to the name.
const makeName = (entry) => make("bdi", { class: "name", part: "name", title: nameOf(entry) }, nameOf(entry));
const makeCountry = (code) => {
  if (!code) return null;
  const flag = flagOf(code);
  const called = countryName(code);
  const kind = flag ? "flag" : "flag letters";
  return make("span", { class: kind, role: "img", "aria-label": called, title: called }, flag ?? code);
};
// The places a player has gained or lost since the page was opened; null for a player who entered from below.
const makeMoved = (places) => {
  if (places === 0 || places === undefined) return null;
  const kind = places === null || places > 0 ? "up" : "down";
  const spoken = places === null ? "came in" : `${kind} ${Math.abs(places)}`;
  const shown = `${kind === "up" ? "▲" : "▼"}${places === null ? "" : numberText(Math.abs(places))}`;
  return make(
    "span",
    { class: `moved ${kind}`, part: `moved ${kind}`, title: `${spoken} since this was opened` },
    make("span", { "aria-hidden": "true" }, shown),
    make("span", { class: "unseen" }, ` ${spoken}`),
  );
};

const isCalm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
