"use strict";
// The views behind the tabs. Each has an element, and update(), called when runs or filters changed.
FL.SweepCards = class {
  constructor(onOpen) {
    this.onOpen = onOpen;
    this.element = FL.h("div", { class: "sweeps" });
  }

  show(sweeps) {
    const text = JSON.stringify(sweeps);
    if (text === this.text) return;
    this.text = text;
    this.element.replaceChildren(...sweeps.map((sweep) => this.card(sweep)));
  }

  card(sweep) {
    if (sweep.error) return FL.h("article", { class: "card sweep" }, FL.h("h3", {}, sweep.name), FL.h("p", { class: "empty" }, sweep.error));
    const words = Object.entries(sweep.counts).filter(([, count]) => count);
    const bar = FL.h("div", { class: "progress", role: "progressbar", "aria-valuenow": sweep.done, "aria-valuemax": sweep.total, "aria-label": sweep.name });
    for (const [state, count] of words) {
      const part = FL.h("i", { "data-status": state, title: `${count} ${state}` });
      part.style.flexGrow = count;
      bar.append(part);
    }
    const left = sweep.seconds_left != null && sweep.is_live ? `about ${FL.duration(sweep.seconds_left)} left` : "";
    const best = sweep.best && FL.h("p", {}, `best ${sweep.metric} `, FL.h("b", {}, FL.figure(sweep.metric, sweep.best.value)), " ",
      FL.h("button", { type: "button", class: "link mono", title: sweep.best.point, onclick: () => this.onOpen(sweep.best.run) }, sweep.best.run));
    const failures = sweep.failures.length ? FL.h("details", {}, FL.h("summary", {}, `${sweep.failures.length} failed`),
      FL.h("ul", { class: "notes" }, sweep.failures.map((line) => FL.h("li", {}, line)))) : null;
    return FL.h("article", { class: "card sweep" },
      FL.h("h3", {}, sweep.name, FL.h("span", { class: sweep.is_live ? "pill on" : "pill" }, sweep.is_live ? "running" : sweep.done >= sweep.total ? "done" : "stopped")),
      bar,
      FL.h("p", { class: "quiet" }, `${sweep.done} of ${sweep.total} done`, words.length ? ` · ${words.map(([state, count]) => `${count} ${state}`).join(" · ")}` : "", left ? ` · ${left}` : ""),
      best, failures);
  }
};

FL.RunsView = class {
  constructor(app) {
    this.app = app;
    this.cards = new FL.SweepCards((id) => app.open(id));
    this.compare = FL.h("button", { type: "button", disabled: true, onclick: () => app.compare(this.table.picked) }, "Compare two runs");
    this.table = new FL.RunTable({ onOpen: (run) => app.open(run.id), onPick: (ids) => { this.compare.disabled = ids.length !== 2; } });
    this.empty = FL.h("p", { class: "empty" }, "No run fits the filter.");
    this.element = FL.h("div", {}, this.cards.element, FL.h("div", { class: "bar" }, FL.h("h2", {}, "Runs"), this.compare), this.table.element, this.empty);
  }

  update() {
    this.cards.show(this.app.sweeps);
    const runs = this.app.chosen();
    this.table.show(runs);
    this.empty.hidden = runs.length > 0;
  }
};

// Charts by key: kept while their key stays, so that zoom and hidden lines survive an update.
FL.ChartGrid = class {
  constructor() {
    this.charts = new Map();
    this.element = FL.h("div", { class: "grid" });
  }

  // wishes: [{key, title, words}], words being the query of one chart.
  show(wishes) {
    const keys = new Set(wishes.map((wish) => wish.key));
    for (const [key, chart] of this.charts) {
      if (keys.has(key)) continue;
      chart.destroy();
      this.charts.delete(key);
    }
    this.element.classList.toggle("single", wishes.length === 1);
    const charts = wishes.map((wish) => this.chart(wish, wishes.length === 1 && window.innerWidth > 800 ? 460 : 260));
    const elements = charts.map((chart) => chart.element);
    if (elements.some((element, place) => this.element.children[place] !== element) || this.element.children.length !== elements.length) {
      this.element.replaceChildren(...elements);
    }
    return Promise.all(charts.map((chart) => this.load(chart)));
  }

  chart(wish, height) {
    let chart = this.charts.get(wish.key);
    if (!chart) {
      chart = new FL.Chart({ title: wish.title, height, onZoom: () => this.load(chart) });
      this.charts.set(wish.key, chart);
    }
    chart.wish = wish;
    return chart;
  }

  async load(chart) {
    const [from, to] = chart.zoom || [];
    const wish = chart.wish;
    const asked = (chart.asked = (chart.asked || 0) + 1);
    const points = Math.min(1000, Math.max(120, Math.round(chart.body.offsetWidth / 2)));
    const data = await FL.get("lines", { ...wish.words, points, from, to });
    if (chart.asked === asked && this.charts.get(wish.key) === chart) chart.show(data, wish.words.metric, wish.words.axis);
  }
};

FL.METRIC_NAMES = {
  "test/accuracy": "Test accuracy", "test/loss": "Test loss", "test/forgetting": "Forgetting", "train/loss": "Training loss",
  "update/norm": "Norm of the update", "qp/worker_active_anchors": "Worker QP: active anchors", "qp/worker_norm_ratio": "Worker QP: norm kept",
  "qp/worker_kkt_residual": "Worker QP: KKT residual", "qp/server_active_anchors": "Server QP: active anchors",
  "qp/server_norm_ratio": "Server QP: norm kept", "qp/server_kkt_residual": "Server QP: KKT residual", "qp/frozen_tensors": "QP: tensors left as they are",
  "qp/fallbacks": "QP: fallbacks", "memory/slots_used": "Memory: slots in use", "memory/evictions": "Memory: evictions", "memory/hits": "Memory: hits",
  "memory/mean_age": "Memory: mean age", "memory/max_age": "Memory: greatest age",
};

FL.CurvesView = class {
  constructor(app) {
    this.app = app;
    this.grid = new FL.ChartGrid();
    this.controls = FL.h("div", { class: "bar" });
    this.element = FL.h("div", {}, this.controls, this.grid.element, FL.h("p", { class: "quiet small" },
      "Lines are means over runs, bands one standard deviation (ddof=1). Drag to zoom, double click to reset; click a legend entry to hide it, double click for it alone."));
    this.wish = { metric: "test/accuracy", by: "algorithm", axis: "rounds", smooth: "1", panels: "scenario" };
  }

  set(name, value) {
    this.wish[name] = value;
    this.update();
  }

  drawControls(known) {
    const text = JSON.stringify([known, this.wish]);
    if (text === this.drawn) return;
    this.drawn = text;
    const control = (name, label, options) => FL.field(label, FL.select(options, this.wish[name], (value) => this.set(name, value), label));
    const metrics = known.metrics.map((metric) => [metric, FL.METRIC_NAMES[metric] || metric]);
    const groups = [["algorithm", "Algorithm"], ["run", "Single runs"], ...known.keys.map((key) => [`algorithm,${key}`, `Algorithm, ${key}`])];
    this.controls.replaceChildren(
      control("metric", "Metric", metrics), control("by", "Lines", groups),
      control("panels", "Panels", [["scenario", "One per scenario"], ["none", "One in all"]]),
      control("axis", "Over", [["rounds", "Rounds"], ["bytes", "Bytes communicated"], ["seconds", "Seconds"]]),
      control("smooth", "Smoothing", [["1", "None"], ["5", "5 rounds"], ["10", "10 rounds"], ["50", "50 rounds"]]));
  }

  async update() {
    const ids = this.app.chosenIds();
    this.drawControls(await FL.get("metrics", { ids }));
    const { metric, by, axis, smooth, panels } = this.wish;
    const words = { metric, axis, smooth };
    if (panels === "none") return this.grid.show([{ key: "all", title: FL.METRIC_NAMES[metric] || metric, words: { ...words, by: `${by},scenario`, ids } }]);
    const scenarios = new Map();
    for (const run of this.app.chosen()) scenarios.set(run.scenario, [...(scenarios.get(run.scenario) || []), run.id]);
    return this.grid.show([...scenarios.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true })).map((scenario) =>
      ({ key: scenario, title: scenario, words: { ...words, by, ids: scenarios.get(scenario).join(",") } })));
  }
};

FL.TablesView = class {
  constructor(app) {
    this.app = app;
    this.wish = { value: "top_accuracy", unit: "rounds", target: "" };
    this.body = FL.h("div", { class: "tables" }, FL.h("p", { class: "empty" }, "Making the tables …"));
    const control = (name, label, options) => FL.field(label, FL.select(options, this.wish[name], (value) => this.set(name, value), label));
    const target = FL.h("input", { type: "number", min: 0, max: 100, step: "any", placeholder: "paper's", "aria-label": "Target accuracy in per cent",
      onchange: (event) => this.set("target", event.target.value === "" ? "" : String(event.target.value / 100)) });
    this.element = FL.h("div", {}, FL.h("div", { class: "bar" },
      control("value", "Table 1 shows", [["top_accuracy", "Top accuracy"], ["final_accuracy", "Last accuracy"], ["area", "Mean accuracy"], ["forgetting", "Forgetting"]]),
      control("unit", "Table 2 counts", [["rounds", "Rounds"], ["rounds_by_seed", "Rounds by seed"], ["bytes", "Bytes"], ["seconds", "Seconds"]]),
      FL.field("Target %", target)), this.body);
  }

  set(name, value) {
    this.wish[name] = value;
    this.update();
  }

  async update() {
    const values = await FL.get("tables", { ...this.wish, ids: this.app.chosenIds() });
    const text = JSON.stringify(values);
    if (text === this.text) return;
    this.text = text;
    this.body.replaceChildren(...["first", "second"].map((name) => FL.h("div", { class: "card" }, FL.reportTable(values[name]))));
  }
};

FL.DiagnosticsView = class {
  constructor(app) {
    this.app = app;
    this.grid = new FL.ChartGrid();
    this.empty = FL.h("p", { class: "empty" }, "No chosen run projects gradients or keeps a memory: GradMA, GradMA-W and GradMA-S do.");
    this.element = FL.h("div", {}, this.empty, this.grid.element);
  }

  async update() {
    const ids = this.app.chosenIds();
    const { metrics } = await FL.get("metrics", { ids });
    const order = Object.keys(FL.METRIC_NAMES);
    const shown = metrics.filter((metric) => /^(qp|memory)\//.test(metric)).sort((one, other) => order.indexOf(one) - order.indexOf(other));
    this.empty.hidden = shown.length > 0;
    return this.grid.show(shown.map((metric) =>
      ({ key: metric, title: FL.METRIC_NAMES[metric] || metric, words: { metric, by: "algorithm,scenario", axis: "rounds", ids } })));
  }
};
