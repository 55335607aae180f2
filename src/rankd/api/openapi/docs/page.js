"use strict";
// Search, copying and trying out; everything else is there without.
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const one = (selector, within = document) => within.querySelector(selector);
const made = (name, text, kind) => {
  const element = document.createElement(name);
  element.textContent = text;
  if (kind) element.className = kind;
  return element;
};

for (const element of all(".search, .try, .copy, .credential")) element.hidden = false;
for (const element of all(".origin")) element.textContent = location.origin;
one(".credential").addEventListener("submit", (event) => event.preventDefault());

// Search
const search = one("#search");
const calls = all("details.call").map((call) => ({
  call,
  link: one(`nav a[href="#${call.id}"]`),
  text: one("summary", call).textContent.toLowerCase() + " " + call.id,
}));
search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const { call, link, text } of calls) {
    const fits = words.every((word) => text.includes(word));
    call.hidden = link.parentElement.hidden = !fits;
    shown += fits;
  }
  for (const group of all("section.group")) {
    const empty = !one("details.call:not([hidden])", group);
    group.hidden = empty;
    one(`nav a[href="#${group.id}"]`).parentElement.hidden = empty;
  }
  for (const other of all("#top, #credentials, #errors")) other.hidden = words.length > 0;
  one("#found").textContent = words.length ? `${shown} of ${calls.length} calls` : "";
});
const searchFor = (text) => {
  search.value = text;
  search.dispatchEvent(new Event("input"));
};
addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "Escape" && event.target === search) {
    searchFor("");
  }
});

// A call, or a code, that an address names is shown.
const reveal = () => {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (!target) return;
  if (target.closest("[hidden]")) searchFor("");
  if (target.matches("details.call")) target.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", reveal);
reveal();

// Copying; where there is no clipboard, as on plain HTTP, by selecting.
const copy = async (source) => {
  try {
    await navigator.clipboard.writeText(source.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(source);
    return document.execCommand("copy");
  }
};
for (const button of all(".copy")) {
  button.addEventListener("click", async () => {
    button.textContent = (await copy(one("pre", button.parentElement))) ? "Copied" : "Selected";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

// JSON is laid out as text: parsed, a score beyond 2^53 would be another one.
const laidOut = (text) => {
  let out = "", depth = 0, at = 0;
  const line = () => "\n" + "  ".repeat(depth);
  while (at < text.length) {
    const letter = text[at];
    if (letter === '"') {
      const end = /"(?:[^"\\]|\\.)*"/y;
      end.lastIndex = at;
      const found = end.exec(text);
      if (!found) return text;
      out += found[0];
      at += found[0].length;
      continue;
    }
    if (letter === "{" || letter === "[") {
      const empty = /[{[]\s*[}\]]/y;
      empty.lastIndex = at;
      const found = empty.exec(text);
      if (found) {
        out += letter + found[0].at(-1);
        at += found[0].length;
        continue;
      }
      depth += 1;
      out += letter + line();
    } else if (letter === "}" || letter === "]") {
      depth -= 1;
      out += line() + letter;
    } else if (letter === ",") out += letter + line();
    else if (letter === ":") out += ": ";
    else if (!/\s/.test(letter)) out += letter;
    at += 1;
  }
  return out;
};

// Trying out
const asked = (form) => {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  for (const input of all("input, select", form)) {
    if (input.dataset.in === "path") path = path.replace(`{${input.name}}`, encodeURIComponent(input.value));
    else if (input.value !== "") query.append(input.name, input.value);
  }
  return query.size ? `${path}?${query}` : path;
};
for (const form of all("form.try")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const output = one("output", form);
    const token = one("#credential").value.trim();
    const address = asked(form);
    output.replaceChildren(made("p", "Asking…", "line"));
    try {
      const began = performance.now();
      const answer = await fetch(address, {
        headers: token ? { Authorization: `Bearer ${token}` } : {}, cache: "no-store", credentials: "omit",
      });
      const text = await answer.text();
      const took = Math.round(performance.now() - began);
      const line = made("p", "", "line");
      line.append(
        made("span", `${answer.status} ${answer.statusText}`.trim(), `status ${answer.ok ? "good" : "bad"}`),
        made("span", ` · ${took} ms · `), made("code", address),
      );
      const isJson = /json/.test(answer.headers.get("content-type") || "");
      const headers = made("details", "", "more");
      headers.append(made("summary", "Headers"));
      headers.append(made("pre", [...answer.headers].map(([name, value]) => `${name}: ${value}`).join("\n")));
      const body = made("pre", isJson ? laidOut(text) : text);
      body.tabIndex = 0;
      output.replaceChildren(line, body, headers);
    } catch (problem) {
      output.replaceChildren(made("p", `No answer came: ${problem.message}`, "line bad"));
    }
  });
}
