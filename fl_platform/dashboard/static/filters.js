// The bar of filters: text that the server parses, and lists from which several values can be chosen.
import { button, h, menu } from "./dom.js";
import { compareText } from "./format.js";
import { anyOf } from "./selection.js";

const FACETS = { algorithm: "Algorithm", scenario: "Scenario", sweep: "Sweep", status: "Status" };
const LONG_LIST = 12;

export class FilterBar {
  // onChange(isTyping) is called when a filter changed.
  constructor(place, onChange) {
    this.onChange = onChange;
    this.text = "";
    this.chosen = Object.fromEntries(Object.keys(FACETS).map((name) => [name, new Set()]));
    this.search = h("input", { id: "search", type: "search", placeholder: "Filter: gradma local_lr>=0.1 seed!=2", spellcheck: "false", autocomplete: "off",
      "aria-label": "Filter runs", "aria-describedby": "filter-help filter-error", oninput: () => this.type(),
      onkeydown: (event) => { if (event.key === "ArrowDown") document.querySelector(".runs tbody tr")?.focus(); } });
    this.count = h("span", { id: "count", class: "quiet" });
    this.error = h("p", { id: "filter-error", class: "error", role: "alert", hidden: true });
    this.clear = button("Clear", () => this.reset(), { id: "clear" });
    this.menus = Object.fromEntries(Object.entries(FACETS).map(([name, label]) => {
      const made = menu(label);
      made.element.id = `filter-${name}`;
      return [name, made];
    }));
    const help = menu("?", h("div", { id: "filter-help", class: "help" },
      h("p", {}, "All terms must hold:"),
      h("ul", {}, ["gradma – a word in the id, algorithm, scenario, state, sweep or tags", "local_lr>=0.1 – any configuration key or its last part; = != > >= < <= ~ (contains)",
        "top>=90% – any figure: top, accuracy, forgetting, seconds, test/loss …", "algorithm=gradma*,moon – any of several, * for any text", 'scenario="Digits, ω=0.1, S=10" – quotes keep spaces and commas',
        "-status=crashed – a minus turns a term round"].map((line) => h("li", {}, line)))));
    help.summary.setAttribute("aria-label", "How to write a filter");
    this.fold = button("Filters", () => this.unfold(), { class: "fold", "aria-expanded": "false" });
    place.replaceChildren(this.fold, this.search, help.element, ...Object.values(this.menus).map((made) => made.element), this.clear, this.count, this.error);
    this.place = place;
  }

  unfold() {
    const isOpen = this.place.classList.toggle("open");
    this.fold.setAttribute("aria-expanded", String(isOpen));
  }

  type() {
    this.text = this.search.value;
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.onChange(true), 40);
  }

  reset() {
    this.set({});
    this.onChange(false);
  }

  // Take filters from the address: {q, algorithm: [...], ...}.
  set(values) {
    this.text = values.q || "";
    if (this.search.value !== this.text) this.search.value = this.text;
    for (const name of Object.keys(FACETS)) this.chosen[name] = new Set(values[name] || []);
  }

  values() {
    return { q: this.text, ...Object.fromEntries(Object.entries(this.chosen).map(([name, values]) => [name, [...values]])) };
  }

  get isSet() {
    return Boolean(this.query());
  }

  // The whole filter as one text for the server.
  query() {
    const lists = Object.entries(this.chosen).filter(([, values]) => values.size).map(([name, values]) => anyOf(name, [...values]));
    return [this.text.trim(), ...lists].filter(Boolean).join(" ");
  }

  toggle(name, value, isOn) {
    if (isOn) this.chosen[name].add(value);
    else this.chosen[name].delete(value);
    this.onChange(false);
  }

  say(text) {
    this.error.textContent = text;
    this.error.hidden = !text;
    this.search.setAttribute("aria-invalid", String(Boolean(text)));
  }

  draw(runs, count, version) {
    this.drawLists(runs, version);
    this.count.textContent = `${count} of ${runs.size} runs`;
    this.fold.textContent = this.isSet ? `Filters · ${count} of ${runs.size} runs` : `Filters · ${runs.size} runs`;
    this.clear.hidden = !this.isSet;
  }

  // Counted again only when runs changed: there may be ten thousand.
  drawLists(runs, version) {
    if (version !== this.version) this.counts = null;
    this.version = version;
    this.counts ||= Object.fromEntries(Object.keys(FACETS).map((name) => [name, this.countsOf(name, runs)]));
    for (const name of Object.keys(FACETS)) this.drawList(name);
  }

  countsOf(name, runs) {
    const counts = new Map();
    for (const run of runs.values()) if (run[name]) counts.set(run[name], (counts.get(run[name]) || 0) + 1);
    return counts;
  }

  drawList(name) {
    const { element, summary, panel } = this.menus[name];
    const counts = new Map(this.counts[name]);
    for (const value of this.chosen[name]) if (!counts.has(value)) counts.set(value, 0);
    const chosen = this.chosen[name];
    summary.textContent = chosen.size === 0 ? FACETS[name] : chosen.size === 1 ? `${FACETS[name]}: ${[...chosen][0]}` : `${FACETS[name]}: ${chosen.size} of ${counts.size}`;
    element.classList.toggle("set", chosen.size > 0);
    element.hidden = counts.size === 0;
    const text = JSON.stringify([[...counts], [...chosen]]);
    if (panel.text === text) return;
    panel.text = text;
    const items = [...counts.keys()].sort(compareText).map((value) => h("label", { class: "item" },
      h("input", { type: "checkbox", checked: chosen.has(value), onchange: (event) => this.toggle(name, value, event.target.checked) }),
      h("span", {}, value), h("small", {}, String(counts.get(value)))));
    const list = h("div", { class: "items" }, items);
    const narrow = (event) => items.forEach((item) => { item.hidden = !item.textContent.toLowerCase().includes(event.target.value.toLowerCase()); });
    const scroll = panel.querySelector(".items")?.scrollTop || 0;
    panel.replaceChildren(items.length > LONG_LIST ? h("input", { type: "search", placeholder: "Search", "aria-label": `Search ${FACETS[name]}`, oninput: narrow }) : "",
      list, button("Clear", () => { chosen.clear(); this.onChange(false); }, { disabled: chosen.size === 0 }));
    list.scrollTop = scroll;
  }
}
