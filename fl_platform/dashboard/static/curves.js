// Charts of metrics, Tables 1 and 2, and what the QPs and the gradient memory did.
import { ask, button, choice, download, empty, field, folded, h } from "./dom.js";
import { METRIC_NAMES, compareText, nameOf } from "./format.js";
import { ChartGrid } from "./grid.js";
import { reportTable } from "./report_table.js";
import { anyOf } from "./selection.js";

const MOST_PANELS = 24;

export class CurvesView {
  static defaults = { metric: "test/accuracy", by: "algorithm", then: "", axis: "rounds", smooth: "1", panels: "scenario", only: "" };

  constructor(app) {
    this.app = app;
    this.grid = new ChartGrid();
    this.controls = h("div", { class: "bar" });
    this.note = h("p", { class: "quiet small" });
    this.element = h("div", {}, folded("Metric, lines and panels", this.controls), this.grid.element, this.note, h("p", { class: "quiet small" },
      "Lines are means over runs, bands one standard deviation (ddof=1). Drag to zoom, double click to reset; click a legend entry to hide it, double click for it alone. The ⋯ menu has logarithmic axes and files."));
  }

  get state() {
    return this.app.states.curves;
  }

  columns() {
    const { panels } = this.state;
    return panels && panels !== "scenario" && panels !== "algorithm" ? [panels] : [];
  }

  drawControls(known) {
    const text = JSON.stringify([known, this.state, this.app.picked.size]);
    if (text === this.drawn) return;
    this.drawn = text;
    const control = (name, label, options) => field(label, choice(options, this.state[name], (value) => this.app.setState("curves", { [name]: value }), label));
    const keys = ["algorithm", "scenario", ...known.keys].map((key) => [key, nameOf(key)]);
    this.controls.replaceChildren(
      control("metric", "Metric", known.metrics.map((metric) => [metric, nameOf(metric)])),
      control("by", "Lines by", [...keys, ["run", "Single runs"]]),
      control("then", "and by", [["", "nothing else"], ...keys]),
      control("panels", "Panels by", [...keys, ["", "One panel for all"]]),
      control("axis", "Over", [["rounds", "Rounds"], ["bytes", "Bytes communicated"], ["seconds", "Seconds"]]),
      control("smooth", "Smoothing", [["1", "None"], ["5", "5 rounds"], ["10", "10 rounds"], ["50", "50 rounds"]]),
      this.app.picked.size || this.state.only ? control("only", "Runs", [["", "All shown"], ["picked", `Ticked (${this.app.picked.size})`]]) : "");
  }

  async update(selection) {
    const { metric, by, then, axis, smooth, panels, only } = this.state;
    const picked = only ? [...this.app.picked].join(",") || "none" : null;
    const q = this.app.filters.query();
    this.drawControls(await ask("metrics", { q, ids: picked }));
    const lines = [...new Set([by, then].filter(Boolean))];
    const query = { metric, axis, smooth, ids: picked };
    if (!panels) {
      this.note.textContent = "";
      const all = by === "run" || lines.includes("scenario") ? lines : [...lines, "scenario"];
      return this.grid.show([{ key: "all", title: nameOf(metric), query: { ...query, by: all.join(","), q } }]);
    }
    const runs = this.app.shown().filter((run) => !only || this.app.picked.has(run.id));
    const valueOf = panels === "scenario" || panels === "algorithm" ? (run) => run[panels] : (run) => selection.value(run.id, panels);
    const values = [...new Set(runs.map(valueOf))].filter((value) => value != null).sort(compareText);
    this.note.textContent = values.length > MOST_PANELS ? `${values.length - MOST_PANELS} more panels are not drawn: filter, or choose other panels.` : "";
    if (!values.length) {
      this.note.textContent = only ? "No ticked run is among those shown." : `No shown run has ${panels}.`;
    }
    return this.grid.show(values.slice(0, MOST_PANELS).map((value) => ({
      key: `${panels}=${value}`, title: panels === "scenario" || panels === "algorithm" ? value : `${panels} = ${value}`,
      query: { ...query, by: lines.join(","), q: `${q} ${anyOf(panels, [value])}`.trim() } })));
  }
}

export class TablesView {
  static defaults = { value: "top_accuracy", unit: "rounds", target: "" };

  constructor(app) {
    this.app = app;
    this.body = h("div", { class: "tables" }, empty("Making the tables …"));
    this.controls = h("div", { class: "bar" });
    this.element = h("div", {}, folded("Measure, unit and target", this.controls), this.body);
  }

  columns() {
    return [];
  }

  drawControls() {
    const state = this.app.states.tables;
    const text = JSON.stringify(state);
    if (text === this.drawn) return;
    this.drawn = text;
    const set = (values) => this.app.setState("tables", values);
    const control = (name, label, options) => field(label, choice(options, state[name], (value) => set({ [name]: value }), label));
    const target = h("input", { type: "number", min: 0, max: 100, step: "any", placeholder: "paper's", "aria-label": "Target accuracy in per cent", value: state.target && String(100 * state.target),
      onchange: (event) => set({ target: event.target.value === "" ? "" : String(event.target.value / 100) }) });
    this.controls.replaceChildren(
      control("value", "Table 1 shows", [["top_accuracy", "Top accuracy"], ["final_accuracy", "Last accuracy"], ["area", "Mean accuracy"], ["forgetting", "Forgetting"]]),
      control("unit", "Table 2 counts", [["rounds", "Rounds"], ["rounds_by_seed", "Rounds by seed"], ["bytes", "Bytes"], ["seconds", "Seconds"]]),
      field("Target %", target));
  }

  async update() {
    this.drawControls();
    const values = await ask("tables", { ...this.app.states.tables, q: this.app.filters.query() });
    const text = JSON.stringify(values);
    if (text === this.text) return;
    this.text = text;
    this.body.replaceChildren(...["first", "second"].map((name) => h("div", { class: "card" }, reportTable(values[name]), this.files(values[name]))));
  }

  // The table as the command `report` writes it.
  files({ title, files = {} }) {
    return h("div", { class: "row" }, Object.entries(files).map(([end, text]) =>
      button(`Save as ${{ tex: "LaTeX", csv: "CSV" }[end]}`, () => download(`${title}.${end}`, new Blob([text])), { class: "reset" })));
  }
}

export class DiagnosticsView {
  static defaults = {};

  constructor(app) {
    this.app = app;
    this.grid = new ChartGrid({ height: 260 });
    this.none = empty("No chosen run projects gradients or keeps a memory: GradMA, GradMA-W and GradMA-S do.");
    this.element = h("div", {}, this.none, this.grid.element);
  }

  columns() {
    return [];
  }

  async update() {
    const q = this.app.filters.query();
    const { metrics } = await ask("metrics", { q });
    const order = Object.keys(METRIC_NAMES);
    const place = (metric) => (order.includes(metric) ? order.indexOf(metric) : order.length);
    const shown = metrics.filter((metric) => /^(qp|memory)\//.test(metric)).sort((one, other) => place(one) - place(other));
    this.none.hidden = shown.length > 0;
    return this.grid.show(shown.map((metric) => ({ key: metric, title: nameOf(metric), query: { metric, by: "algorithm,scenario", axis: "rounds", q } })));
  }
}
