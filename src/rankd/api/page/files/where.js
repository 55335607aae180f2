// Which window and which scope: chosen here, kept in the address, so that what one sees can be sent to somebody.
import { countryName, make, scopeLabel, windowLabel, windowNames } from "/rankd-board.js";

const BUTTONS_MAX = 5; // windows side by side; more of them are a list
const isEndless = (name) => ["all_time", "period"].includes(name.split(":")[0]); // there is none before it
const COUNTRIES = `
  AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ
  CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO
  FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE
  JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO
  MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW
  PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM
  TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW
`.trim().split(/\s+/);

export class Where {
  #form = document.getElementById("where");
  #definition;
  #choose;

  constructor(definition, choose) {
    this.#definition = definition;
    this.#choose = choose;
    this.#form.addEventListener("submit", (event) => event.preventDefault());
    addEventListener("hashchange", () => this.#changed());
    this.#build();
  }

  // What the address says, as far as the board knows it; null for the board's own default.
  get window() {
    const named = new URLSearchParams(location.hash.slice(1)).get("window");
    const [name, previous] = (named ?? "").split(":previous");
    const isThere = windowNames(this.#definition).includes(name) && (previous === undefined || !isEndless(name));
    return isThere ? named : null;
  }
  get scope() {
    const named = new URLSearchParams(location.hash.slice(1)).get("scope");
    const [attribute, value] = (named ?? "").split(/:(.*)/s);
    if (value && this.#definition.scopes.includes(attribute)) return named;
    return this.#definition.global ? null : `${this.#definition.scopes[0]}:${this.#usual(this.#definition.scopes[0])}`;
  }

  // Where there is no board of everybody, one has to begin somewhere: with the country the browser is set to.
  #usual(attribute) {
    return attribute === "country" ? (new Intl.Locale(navigator.language).maximize().region ?? "US") : "1";
  }

  #go({ window = this.window, scope = this.scope }) {
    const names = windowNames(this.#definition);
    const said = [];
    if (window && window !== names[0]) said.push(["window", window]);
    if (scope && scope !== "global") said.push(["scope", scope]);
    const hash = new URLSearchParams(said).toString().replaceAll("%3A", ":");
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname);
    this.#changed();
  }

  #changed() {
    this.#build();
    this.#choose();
  }

  #build() {
    const focused = document.activeElement?.id;
    this.#form.replaceChildren(...[this.#windows(), this.#previous(), this.#scopes()].filter(Boolean));
    this.#form.hidden = this.#form.childElementCount === 0;
    if (focused && this.#form.querySelector(`#${CSS.escape(focused)}`)) document.getElementById(focused).focus();
  }

  get #name() {
    return this.window?.split(":previous")[0] ?? windowNames(this.#definition)[0];
  }

  #windows() {
    const names = windowNames(this.#definition);
    if (names.length < 2) return null;
    if (names.length > BUTTONS_MAX) {
      const options = names.map((name) => new Option(windowLabel(name), name, false, name === this.#name));
      const list = make("select", { id: "window", "aria-label": "Window" }, ...options);
      list.addEventListener("change", () => this.#go({ window: list.value }));
      return list;
    }
    const choices = names.map((name, at) => {
      const button = make("input", { type: "radio", name: "window", value: name, id: `window-${at}` });
      button.checked = name === this.#name;
      button.addEventListener("change", () => this.#go({ window: name }));
      return make("label", {}, button, make("span", {}, windowLabel(name)));
    });
    return make("fieldset", { class: "choices" }, make("legend", { class: "unseen" }, "Window"), ...choices);
  }

  #previous() {
    const name = this.#name;
    if (isEndless(name)) return null;
    const isPrevious = this.window?.endsWith(":previous") ?? false;
    const label = windowLabel(`${name}:previous`);
    const pressed = { "aria-pressed": String(isPrevious) };
    const button = make("button", { type: "button", id: "previous", class: "toggle", ...pressed }, label);
    button.addEventListener("click", () => this.#go({ window: isPrevious ? name : `${name}:previous` }));
    return button;
  }

  #scopes() {
    const { scopes, global: hasGlobal } = this.#definition;
    if (!scopes.length) return null;
    const [attribute = "global", value = ""] = (this.scope ?? "global").split(/:(.*)/s);
    const kinds = [...(hasGlobal ? ["global"] : []), ...scopes];
    const called = (kind) => (kind === "global" ? "Everyone" : `By ${kind}`);
    const options = kinds.map((kind) => new Option(called(kind), kind, false, kind === attribute));
    const kind = make("select", { id: "scope", "aria-label": "Who" }, ...options);
    kind.addEventListener("change", () => {
      this.#go({ scope: kind.value === "global" ? "global" : `${kind.value}:${this.#usual(kind.value)}` });
    });
    return make("div", { class: "scopes" }, kind, attribute === "global" ? null : this.#value(attribute, value));
  }

  #value(attribute, value) {
    if (attribute !== "country") {
      const input = make("input", { id: "scope-value", "aria-label": attribute, maxlength: 64, autocomplete: "off" });
      input.value = value;
      input.addEventListener("change", () => {
        const text = input.value.trim();
        if (text) this.#go({ scope: `${attribute}:${text}` });
      });
      return input;
    }
    const codes = COUNTRIES.includes(value) ? COUNTRIES : [value, ...COUNTRIES];
    const named = codes.map((code) => [countryName(code), code]).sort((a, b) => a[0].localeCompare(b[0]));
    const options = named.map(([name, code]) => new Option(name, code, false, code === value));
    const list = make("select", { id: "scope-value", "aria-label": "Country" }, ...options);
    list.addEventListener("change", () => this.#go({ scope: `country:${list.value}` }));
    return list;
  }

  // What is shown, in words.
  get label() {
    const window = windowLabel(this.window ?? windowNames(this.#definition)[0]);
    return this.scope ? `${window}, ${scopeLabel(this.scope)}` : window;
  }
}
