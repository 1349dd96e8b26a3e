// The page's state: runs as the server has them, filters, the open view. It asks for news every two seconds.
import { CompareView } from "./compare.js";
import { CurvesView, DiagnosticsView, TablesView } from "./curves.js";
import { Details } from "./details.js";
import { ask, button, h } from "./dom.js";
import { FilterBar } from "./filters.js";
import { RunsView } from "./runs.js";
import { Selection, anyOf } from "./selection.js";
import { applyTheme, switchTheme } from "./theme.js";
import { TuningView } from "./tuning.js";

const VIEWS = { runs: ["Runs", RunsView], curves: ["Curves", CurvesView], tables: ["Tables", TablesView], tuning: ["Tuning", TuningView],
  qp: ["QP & memory", DiagnosticsView], compare: ["Compare", CompareView] };
const KEYS = { "/": "write a filter", "1 … 6": "open a view", "↑ ↓": "move between runs", "Space": "tick a run", "Enter": "open a run", "← →": "move the cursor of a chart, or between the views",
  "c": "compare ticked runs", "p": "plot ticked runs", "d": "light or dark", "Esc": "close what is open", "?": "this list" };
const FACETS = ["sweep", "scenario", "algorithm", "status"];
const MOST_IN_ADDRESS = 300; // ticked runs

const place = (id) => document.getElementById(id);

class App {
  constructor() {
    this.runs = new Map();
    this.sweeps = [];
    this.version = 0;
    this.picked = new Set();
    this.compared = [];
    this.selection = new Selection();
    this.states = {};
    this.made = {};
    this.asked = 0;
    this.notices = {};
    applyTheme();
    this.filters = new FilterBar(place("filters"), (isTyping) => {
      this.remember(!(isTyping && this.isTyping));
      this.isTyping = isTyping;
      this.changed();
    });
    this.details = new Details(place("details"), () => this.open(null));
    this.recall();
    this.remember(false);
    this.listen();
    this.drawTabs();
    this.poll();
  }

  listen() {
    addEventListener("popstate", () => this.recallAndShow());
    addEventListener("hashchange", () => this.recallAndShow());
    place("theme").addEventListener("click", switchTheme);
    place("keys").addEventListener("click", () => this.help());
    document.addEventListener("keydown", (event) => this.press(event));
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.poll(); });
  }

  // --- the address keeps everything that is chosen: a page can be reloaded, sent on, and gone back to ---

  recall() {
    const words = new URLSearchParams(location.hash.slice(1));
    this.address = location.hash;
    this.filters.set({ q: words.get("q"), ...Object.fromEntries(FACETS.map((name) => [name, words.getAll(name)])) });
    this.view = words.get("view") in VIEWS ? words.get("view") : "runs";
    this.compared = (words.get("compare") || "").split(",").filter(Boolean);
    const picked = (words.get("ticked") || "").split(",").filter(Boolean);
    this.picked.clear(); // the table holds this very set
    for (const id of picked) this.picked.add(id);
    this.wanted = words.get("run");
    for (const [view, [, made]] of Object.entries(VIEWS)) {
      this.states[view] = Object.fromEntries(Object.entries(made.defaults).map(([name, usual]) => [name, words.get(`${view}.${name}`) ?? usual]));
    }
  }

  async recallAndShow() {
    if (location.hash === this.address) return;
    this.recall();
    this.drawTabs();
    if (!this.wanted) this.details.hide();
    await this.changed();
    await this.showWanted();
  }

  remember(isNew = true) {
    const words = new URLSearchParams({ view: this.view });
    const filters = this.filters.values();
    if (filters.q) words.set("q", filters.q);
    for (const name of FACETS) for (const value of filters[name]) words.append(name, value);
    if (this.compared.length) words.set("compare", this.compared.join(","));
    if (this.picked.size && this.picked.size <= MOST_IN_ADDRESS) words.set("ticked", [...this.picked].join(","));
    for (const [view, [, made]] of Object.entries(VIEWS)) {
      for (const [name, value] of Object.entries(this.states[view])) if (value !== made.defaults[name]) words.set(`${view}.${name}`, value);
    }
    if (this.wanted) words.set("run", this.wanted);
    const address = `#${words}`;
    if (address === this.address) return;
    if (isNew) this.isTyping = false;
    history[isNew ? "pushState" : "replaceState"](null, "", address);
    this.address = location.hash;
  }

  // Change what a view is told: {name: value}; the view is drawn again unless it did that itself.
  setState(view, values, isDrawn = true) {
    Object.assign(this.states[view], values);
    this.remember();
    if (isDrawn) this.changed();
  }

  // --- news ---

  async poll() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    try {
      const news = await ask("overview", { since: this.version });
      this.say(news.is_looking ? "" : "The files are no longer read: the terminal of the dashboard says why.", "server");
      await this.take(news);
    } catch (error) {
      this.say(error instanceof TypeError ? "The dashboard does not answer; it is asked again every two seconds." : error.message, "server");
      place("live").className = "live off";
    }
    this.timer = setTimeout(() => this.poll(), 2000);
  }

  async take(news) {
    const isNew = news.version !== this.version;
    if (news.full) this.runs.clear();
    for (const run of news.runs) this.runs.set(run.id, run);
    this.version = news.version;
    this.sweeps = news.sweeps;
    this.root = news.root;
    place("root").textContent = `\u200e${news.root}\u200e`; // a path reads left to right where its start is cut off
    const running = [...this.runs.values()].filter((run) => run.status === "running").length;
    place("live").className = "live on";
    place("live").textContent = news.unread ? `reading ${news.unread} runs …` : running ? `live · ${running} running` : "live";
    place("live").title = news.warnings.join("\n");
    if (!isNew) return;
    await this.changed();
    await this.showWanted();
  }

  // What went wrong: with the view until it was drawn again, with the server until it answers.
  say(text, about = "view") {
    this.notices[about] = text;
    place("notice").textContent = Object.values(this.notices).filter(Boolean).join(" ");
    place("notice").hidden = !place("notice").textContent;
  }

  // --- what is shown ---

  shown() {
    return this.selection.ids.map((id) => this.runs.get(id)).filter(Boolean);
  }

  async changed() {
    const asked = (this.asked += 1);
    const view = (this.made[this.view] ||= new VIEWS[this.view][1](this));
    try {
      const found = await ask("select", { q: this.filters.query(), columns: view.columns().join(",") });
      if (asked !== this.asked) return;
      this.selection = new Selection(found);
      this.filters.say("");
    } catch (error) {
      if (asked !== this.asked) return;
      if (error instanceof TypeError) throw error;
      this.filters.say(error.message);
      this.filters.drawLists(this.runs, this.version);
      if (place("view").firstChild !== view.element) place("view").replaceChildren(h("p", { class: "empty" }, `The filter cannot be used: ${error.message}.`));
      return; // the view stays as it was until the filter is whole
    }
    this.filters.draw(this.runs, this.shown().length, this.version);
    const nothing = this.nothing();
    const element = nothing || view.element;
    if (place("view").firstChild !== element) place("view").replaceChildren(element);
    if (nothing) return;
    await this.settle(view.update(this.selection));
  }

  async settle(work) {
    try {
      await work;
      this.say("");
    } catch (error) {
      if (error instanceof TypeError && !/fetch/i.test(error.message)) throw error; // a mistake in the page itself
      this.say(error.message);
    }
  }

  // What to show instead of a view when there is no run for it.
  nothing() {
    if (this.selection.ids.length || (this.view === "compare" && this.compared.length > 1)) return null;
    if (!this.runs.size) {
      return h("div", { class: "empty" }, h("p", {}, `No run below ${this.root || "this directory"} yet; the page fills as runs are written. A first one:`),
        h("p", { class: "mono" }, `fl-platform run data.name=digits num_rounds=20 output.dir=${this.root || "runs"}`));
    }
    return h("div", { class: "empty" }, h("p", {}, `None of the ${this.runs.size} runs fits the filter ${this.filters.query()}`), button("Clear the filter", () => this.filters.reset()));
  }

  drawTabs() {
    const names = Object.keys(VIEWS);
    const turn = (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      this.go(names[(names.indexOf(this.view) + step + names.length) % names.length]);
      place("tabs").querySelector("[aria-selected=true]").focus();
    };
    place("tabs").replaceChildren(...Object.entries(VIEWS).map(([name, [label]]) =>
      button(label, () => this.go(name), { role: "tab", id: `tab-${name}`, "aria-selected": String(name === this.view), tabindex: name === this.view ? 0 : -1, onkeydown: turn })));
    place("tabs").querySelector("[aria-selected=true]").scrollIntoView({ block: "nearest", inline: "nearest" });
    place("view").setAttribute("aria-labelledby", `tab-${this.view}`);
  }

  go(name) {
    this.view = name;
    this.drawTabs();
    this.remember();
    return this.changed();
  }

  open(id) {
    this.wanted = id;
    this.remember();
    if (!id) this.details.hide();
    else this.settle(this.details.show(id));
  }

  showWanted() {
    return this.wanted && this.runs.has(this.wanted) ? this.settle(this.details.show(this.wanted)) : null;
  }

  compare(ids) {
    this.compared = ids;
    this.go("compare");
  }

  plotPicked() {
    Object.assign(this.states.curves, { only: "picked", by: "run", then: "" });
    this.go("curves");
  }

  tune(sweep) {
    this.made.tuning ||= new TuningView(this);
    this.made.tuning.chooseSweep(sweep);
    this.go("tuning");
  }

  // Filter by these runs, in words that can be read and changed.
  keep(ids) {
    this.filters.set({ ...this.filters.values(), q: anyOf("id", ids) });
    this.remember();
    this.changed();
  }

  help() {
    const dialog = place("help");
    dialog.replaceChildren(h("h2", {}, "Keyboard"), h("table", { class: "pairs" }, h("tbody", {}, Object.entries(KEYS).map(([key, text]) =>
      h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, key)), h("td", {}, text))))), button("Close", () => dialog.close()));
    dialog.showModal();
  }

  press(event) {
    if (event.key === "Escape" && this.details.id) return this.open(null);
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), select, textarea")) return null;
    const views = Object.keys(VIEWS);
    const actions = { "/": () => { place("filters").classList.add("open"); this.filters.search.focus(); }, "?": () => this.help(), d: switchTheme,
      c: () => { if (this.picked.size > 1) this.compare([...this.picked]); }, p: () => { if (this.picked.size) this.plotPicked(); } };
    views.forEach((name, number) => { actions[String(number + 1)] = () => this.go(name); });
    if (!(event.key in actions)) return null;
    event.preventDefault();
    return actions[event.key]();
  }
}

globalThis.app = new App();
