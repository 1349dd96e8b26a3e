"use strict";
// The page's state: runs as the server has them, filters, the open view. It asks for news every two seconds.
FL.App = class {
  constructor() {
    this.runs = new Map();
    this.sweeps = [];
    this.version = 0;
    this.filters = { q: "", sweep: "", scenario: "", algorithm: "", status: "" };
    this.pair = ["", ""];
    this.texts = new WeakMap();
    this.views = { runs: ["Runs", FL.RunsView], curves: ["Curves", FL.CurvesView], tables: ["Tables", FL.TablesView],
      qp: ["QP & memory", FL.DiagnosticsView], compare: ["Compare", FL.CompareView] };
    this.made = {};
    this.place = (id) => document.getElementById(id);
    this.details = new FL.Details(this.place("details"), () => this.remember());
    this.recall();
    this.listen();
    this.drawTabs();
    this.poll();
  }

  listen() {
    this.place("search").value = this.filters.q;
    this.place("search").addEventListener("input", (event) => this.filter("q", event.target.value));
    for (const name of ["sweep", "scenario", "algorithm", "status"]) {
      this.place(`filter-${name}`).addEventListener("change", (event) => this.filter(name, event.target.value));
    }
    this.place("clear").addEventListener("click", () => {
      this.place("search").value = "";
      for (const name of Object.keys(this.filters)) this.filters[name] = "";
      this.changed();
    });
    document.addEventListener("keydown", (event) => { if (event.key === "Escape" && this.details.id) this.details.close(); });
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.poll(); });
  }

  // --- the address keeps view, filters and pair, so that a page can be reloaded or sent on ---

  recall() {
    const words = new URLSearchParams(location.hash.slice(1));
    for (const name of Object.keys(this.filters)) this.filters[name] = words.get(name) || "";
    this.view = words.get("view") in this.views ? words.get("view") : "runs";
    this.pair = [words.get("a") || "", words.get("b") || ""];
    this.wanted = words.get("run");
  }

  remember() {
    const words = { view: this.view, ...this.filters, a: this.pair[0], b: this.pair[1], run: this.details.id };
    const given = Object.entries(words).filter(([, value]) => value);
    history.replaceState(null, "", `#${new URLSearchParams(given)}`);
  }

  // --- news ---

  async poll() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    try {
      const news = await FL.get("overview", { since: this.version });
      this.say(news.is_looking ? "" : "The files are no longer read: the terminal of the dashboard says why.");
      await this.take(news);
    } catch (error) {
      this.say(error instanceof TypeError ? "The dashboard does not answer; it is asked again every two seconds." : error.message);
      this.place("live").className = "live off";
    }
    this.timer = setTimeout(() => this.poll(), 2000);
  }

  async take(news) {
    const isNew = news.version !== this.version;
    if (news.full) this.runs.clear();
    for (const run of news.runs) this.runs.set(run.id, run);
    this.version = news.version;
    this.sweeps = news.sweeps;
    this.place("root").textContent = `\u200e${news.root}\u200e`; // a path reads left to right where its start is cut off
    const running = [...this.runs.values()].filter((run) => run.status === "running").length;
    this.place("live").className = "live on";
    this.place("live").textContent = news.unread ? `reading ${news.unread} runs …` : running ? `live · ${running} running` : "live";
    this.place("live").title = news.warnings.join("\n");
    if (!isNew) return;
    await this.changed();
    const open = this.details.id || this.wanted;
    this.wanted = null;
    if (open && this.runs.has(open)) await this.details.show(open);
  }

  say(text) {
    this.place("notice").textContent = text;
    this.place("notice").hidden = !text;
  }

  // --- filters ---

  filter(name, value) {
    this.filters[name] = value;
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.changed(), name === "q" ? 150 : 0);
  }

  text(run) {
    if (!this.texts.has(run)) {
      const settings = Object.entries(run.settings).map(([key, value]) => `${key}=${value}`);
      const words = [run.id, run.name, run.status, run.algorithm, run.scenario, run.sweep, `seed=${run.seed}`, ...run.tags, ...settings];
      this.texts.set(run, words.join("\n").toLowerCase());
    }
    return this.texts.get(run);
  }

  chosen() {
    const words = this.filters.q.toLowerCase().split(/\s+/).filter(Boolean);
    const exact = ["sweep", "scenario", "algorithm", "status"].filter((name) => this.filters[name]);
    return [...this.runs.values()].filter((run) =>
      exact.every((name) => run[name] === this.filters[name]) && words.every((word) => this.text(run).includes(word)));
  }

  // Nothing when no filter is set: the server then takes all runs.
  chosenIds() {
    return Object.values(this.filters).some(Boolean) ? this.chosen().map((run) => run.id).join(",") || "none" : null;
  }

  drawFilters() {
    const all = { sweep: "All sweeps", scenario: "All scenarios", algorithm: "All algorithms", status: "All states" };
    for (const [name, text] of Object.entries(all)) {
      const counts = new Map();
      for (const run of this.runs.values()) if (run[name]) counts.set(run[name], (counts.get(run[name]) || 0) + 1);
      if (this.filters[name] && !counts.has(this.filters[name])) counts.set(this.filters[name], 0);
      const options = [...counts.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true })).map((value) =>
        FL.h("option", { value, selected: this.filters[name] === value }, `${value} (${counts.get(value)})`));
      const select = this.place(`filter-${name}`);
      select.replaceChildren(FL.h("option", { value: "" }, text), ...options);
      select.classList.toggle("set", Boolean(this.filters[name]));
      select.hidden = counts.size === 0;
    }
    this.place("count").textContent = `${this.chosen().length} of ${this.runs.size} runs`;
  }

  // --- views ---

  drawTabs() {
    this.place("tabs").replaceChildren(...Object.entries(this.views).map(([name, [label]]) =>
      FL.h("button", { type: "button", role: "tab", "aria-selected": String(name === this.view), onclick: () => this.go(name) }, label)));
  }

  go(name) {
    this.view = name;
    this.drawTabs();
    this.changed();
  }

  async changed() {
    this.drawFilters();
    this.remember();
    const view = (this.made[this.view] ||= new this.views[this.view][1](this));
    if (this.place("view").firstChild !== view.element) this.place("view").replaceChildren(view.element);
    try {
      await view.update();
    } catch (error) {
      if (error instanceof TypeError && !/fetch/i.test(error.message)) throw error; // a mistake in the page itself
      this.say(error.message);
    }
  }

  open(id) {
    this.details.show(id).then(() => this.remember());
  }

  compare(ids) {
    this.pair = [...ids].slice(0, 2);
    this.go("compare");
  }

  setPair(place, id) {
    this.pair[place] = id;
    this.changed();
  }
};

FL.app = new FL.App();
