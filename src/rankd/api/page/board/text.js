// How scores, places, times, windows and people are written. Whatever players chose is text, never markup.

const BIDI_CONTROLS = /[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]/g;
const WINDOWS = {
  all_time: ["All time"],
  yearly: ["This year", "Last year"],
  monthly: ["This month", "Last month"],
  weekly: ["This week", "Last week"],
  daily: ["Today", "Yesterday"],
  hourly: ["This hour", "Last hour"],
};

// Scores may have 64 bits; a number of JavaScript holds 53 of them.
const parsed = (text) =>
  /\d{16}/.test(text)
    ? JSON.parse(text, (_, value, context) =>
        typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
          ? BigInt(context.source)
          : value,
      )
    : JSON.parse(text);

const formats = new Map();
const scoreText = (score, decimals = 0) => {
  let format = formats.get(decimals);
  if (!format) {
    format = new Intl.NumberFormat(undefined, { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
    formats.set(decimals, format);
  }
  if (!decimals) return format.format(score);
  const text = String(score);
  const sign = text.startsWith("-") ? "-" : "";
  const digits = text.slice(sign.length).padStart(decimals + 1, "0");
  return format.format(`${sign}${digits.slice(0, -decimals)}.${digits.slice(-decimals)}`);
};

const whole = new Intl.NumberFormat();
const numberText = (number) => whole.format(number);
// An estimate, which says between which places the true one is, is marked as one.
const rankText = ({ rank, rank_min }) => (rank_min === undefined ? "" : "~") + numberText(rank);

const countText = (count, { team }) => `${numberText(count)} ${team ? "team" : "player"}${count === 1 ? "" : "s"}`;

const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const shortScoreText = (score, decimals = 0) => {
  const number = Number(score) / 10 ** decimals;
  return Math.abs(number) < 10_000 ? scoreText(score, decimals) : compact.format(number);
};

const share = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 2 });
const percentText = (percent) => (percent >= 99.5 ? "100" : share.format(percent)) + " %";

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const dayOfYear = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const momentText = (ms) => moment.format(ms);
const whenText = (ms, now = Date.now()) => {
  const then = new Date(ms);
  const today = new Date(now);
  if (then.toDateString() === today.toDateString()) return clock.format(then);
  return (then.getFullYear() === today.getFullYear() ? day : dayOfYear).format(then);
};

// Windows: a definition names them as text, those with a reset of their own as objects, periods apart.
const windowNames = (definition) => [
  ...definition.windows.map((window) => (typeof window === "string" ? window : window.name)),
  ...(definition.periods ?? []).map((period) => `period:${period.name}`),
];
const windowLabel = (name) => {
  const [kind, rest] = name.split(/:(.*)/s);
  const known = WINDOWS[kind];
  if (kind === "period") return rest ?? kind;
  if (rest === "previous") return known?.[1] ?? `${kind}, the last one`;
  return rest === undefined ? (known?.[0] ?? kind) : instanceLabel(name);
};
// `weekly:2026-W18`, as people say it; what it does not know stays as it is.
const instanceLabel = (instance) => {
  const [kind, rest = ""] = instance.split(/:(.*)/s);
  const date = (text, options) =>
    new Intl.DateTimeFormat(undefined, { timeZone: "UTC", ...options }).format(new Date(`${text}T00:00:00Z`));
  const week = /^(\d{4})-W(\d\d)$/.exec(rest);
  try {
    if (kind === "all_time") return "since the beginning";
    if (kind === "weekly" && week) return `week ${Number(week[2])} of ${week[1]}`;
    if (kind === "weekly") return `week of ${date(rest, { dateStyle: "medium" })}`;
    if (kind === "daily") return date(rest, { dateStyle: "medium" });
    if (kind === "monthly") return date(`${rest}-01`, { month: "long", year: "numeric" });
  } catch {
    return rest;
  }
  return rest || kind;
};
const scopeLabel = (scope) => {
  if (!scope || scope === "global") return "Everyone";
  const [attribute, value] = scope.split(/:(.*)/s);
  return attribute === "country" ? countryName(value) : `${attribute} ${value}`;
};

// People
const nameOf = (entry) => (entry.name?.replace(BIDI_CONTROLS, "").trim() ? entry.name : entry.player);

const regions = globalThis.Intl?.DisplayNames ? new Intl.DisplayNames(undefined, { type: "region" }) : null;
const countryName = (code) => {
  try {
    return regions?.of(code) ?? code;
  } catch {
    return code;
  }
};
// A font without flags shows two letters side by side, or two boxes: letters of ours are better.
let hasFlags = null;
const flagOf = (code) => {
  if (!/^[A-Z]{2}$/.test(code)) return null;
  const letters = [...code].map((letter) => String.fromCodePoint(0x1f1e6 + letter.charCodeAt(0) - 65));
  if (hasFlags === null) {
    const pen = document.createElement("canvas").getContext("2d");
    const width = (text) => pen?.measureText(text).width ?? 0;
    hasFlags = width(letters.join("")) < 0.9 * (width(letters[0]) + width(letters[1]));
  }
  return hasFlags ? letters.join("") : null;
};

const graphemes = globalThis.Intl?.Segmenter ? new Intl.Segmenter() : null;
const firstLetter = (word) => (graphemes ? [...graphemes.segment(word)][0]?.segment : [...word][0]) ?? "";
const initialsOf = (entry) => {
  const words = nameOf(entry).replace(BIDI_CONTROLS, "").split(/[\s_.-]+/u).filter(Boolean);
  const letters = words.length > 1 ? [words[0], words.at(-1)] : words;
  return letters.map(firstLetter).join("").toLocaleUpperCase() || "?";
};
const hueOf = (player) => {
  let hash = 2166136261;
  for (const unit of new TextEncoder().encode(player)) hash = Math.imul(hash ^ unit, 16777619);
  return (hash >>> 0) % 360;
};
// An avatar is loaded only from an origin that was allowed; `*` allows all.
const avatarAddress = (url, origins) => {
  if (!url || !origins.length) return null;
  try {
    const { origin, protocol, href } = new URL(url);
    const isWeb = protocol === "https:" || protocol === "http:";
    return isWeb && (origins.includes("*") || origins.includes(origin)) ? href : null;
  } catch {
    return null;
  }
};
