// Any number of runs side by side: curves, what differs in their configurations, figures, accuracy per class.
import { swatch } from "./chart.js";
import { ask, button, empty, field, h } from "./dom.js";
import { compareText, figure, nameOf, percent } from "./format.js";
import { ChartGrid } from "./grid.js";

const METRICS = ["test/accuracy", "test/loss", "test/forgetting", "train/loss"];
const MOST = 30;
const OFFERED = 300;
const SAID_ELSEWHERE = ["id", "group", "label", "kind", "method_group", "data_label"].map((name) => `run.${name}`);

export class CompareView {
  static defaults = {};

  constructor(app) {
    this.app = app;
    this.grid = new ChartGrid();
    this.chips = h("div", { class: "chips" });
    this.list = h("datalist", { id: "offered" });
    this.input = h("input", { list: "offered", placeholder: "Run id", "aria-label": "Add a run to the comparison", onchange: () => this.add() });
    this.controls = h("div", { class: "bar" }, field("Add a run", this.input), this.list, this.chips);
    this.body = h("div", { class: "tables" });
    this.element = h("div", {}, this.controls, this.grid.element, this.body);
  }

  columns() {
    return [];
  }

  add() {
    const id = this.input.value.trim();
    if (!this.app.runs.has(id)) {
      this.app.say(id ? `There is no run ${id} here.` : "");
      return;
    }
    this.input.value = "";
    this.app.say("");
    this.app.compare([...new Set([...this.app.compared, id])]);
  }

  drawControls() {
    this.list.replaceChildren(...this.app.shown().slice(0, OFFERED).map((run) => h("option", { value: run.id }, `${run.algorithm}, ${run.scenario}, seed ${run.seed ?? "?"}`)));
    this.chips.replaceChildren(...this.app.compared.map((id) => {
      const run = this.app.runs.get(id);
      return h("span", { class: "chip" }, run ? run.algorithm : "gone", h("span", { class: "mono" }, ` ${id} `),
        button("×", () => this.app.compare(this.app.compared.filter((other) => other !== id)), { "aria-label": `Remove ${id}`, class: "link" }));
    }));
  }

  async update() {
    this.drawControls();
    const ids = this.app.compared.filter((id) => this.app.runs.has(id)).slice(0, MOST);
    if (ids.length < 2) {
      this.body.replaceChildren(empty("Tick two or more runs in the table of runs and press Compare, or add them here by id."));
      this.grid.show([]);
      return;
    }
    const runs = await Promise.all(ids.map((id) => ask("run", { id })));
    const charts = this.grid.show(METRICS.map((metric) => ({ key: metric, title: nameOf(metric), query: { metric, by: "run", axis: "rounds", ids: ids.join(",") } })));
    await charts;
    const { lines } = this.grid.charts.get(METRICS[0]).data;
    for (const run of runs) run.line = lines.find((line) => line.label.endsWith(`(${run.id})`));
    const left = this.app.compared.length - ids.length;
    this.body.replaceChildren(left > 0 ? h("p", { class: "warning" }, `${left} of the chosen runs are not compared: they are gone, or more than ${MOST}.`) : "",
      this.configurations(runs), this.figures(runs), this.classes(runs));
  }

  // A table with a column per run; rows: [name, cells, order], order deciding which cells are marked as the best.
  table(title, runs, rows, none) {
    const head = h("thead", {}, h("tr", {}, h("th", {}), runs.map((run) => h("th", { scope: "col", class: rows[0]?.[2] || null }, run.line ? h("div", {}, swatch(run.line)) : null, h("div", {}, run.algorithm), h("div", { class: "mono quiet" }, run.id)))));
    const lines = rows.map(([name, cells, className]) => h("tr", {}, h("th", { scope: "row" }, name), cells.map((cell) => h("td", { class: className || null, title: typeof cell === "string" ? cell : null }, cell))));
    const body = rows.length ? h("div", { class: "scroll" }, h("table", { class: "pairs sided" }, head, h("tbody", {}, lines))) : empty(none);
    return h("div", { class: "card" }, h("h3", {}, title), body);
  }

  configurations(runs) {
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.config)))].filter((name) => !SAID_ELSEWHERE.includes(name));
    const differing = names.filter((name) => new Set(runs.map((run) => run.config[name])).size > 1);
    return this.table(`Configuration: ${differing.length} of ${names.length} keys differ`, runs, differing.map((name) => [name, runs.map((run) => run.config[name] ?? "–")]), "No difference.");
  }

  figures(runs) {
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.latest)))].sort(compareText);
    const own = names.map((name) => {
      const values = runs.map((run) => run.latest[name]);
      const known = values.filter((value) => value != null);
      const gap = known.length === 2 && runs.length === 2 ? values[1] - values[0] : null;
      return [name, [...values.map((value) => figure(name, value) || "–"), ...(runs.length === 2 ? [gap == null ? "" : figure(name, gap)] : [])], "number"];
    });
    const summaries = [...new Set(runs.flatMap((run) => Object.keys(run.summary)))].filter((name) => !names.includes(name) && name !== "run").sort(compareText)
      .map((name) => [name, [...runs.map((run) => written(name, run.summary[name])), ...(runs.length === 2 ? [""] : [])], "number"]);
    const made = this.table("Newest figures and summary", runs, [...own, ...summaries], "No figures yet.");
    if (runs.length === 2) made.querySelector("thead tr")?.append(h("th", { scope: "col", class: "number" }, "second − first"));
    return made;
  }

  classes(runs) {
    const count = Math.max(...runs.map((run) => run.classes.length));
    const rows = Array.from({ length: count }, (_, label) => {
      const values = runs.map((run) => run.classes[label]);
      return [`class ${label}`, values.map((value) => {
        if (value == null) return "–";
        const bar = h("i", {});
        bar.style.width = `${100 * value}%`;
        return h("span", { class: "share" }, bar, h("span", {}, percent(value, 1)));
      })];
    });
    return this.table("Accuracy per class, at the newest evaluation", runs, rows, "No run has evaluated its classes.");
  }
}

const written = (name, text) => (text == null ? "–" : Number.isNaN(Number(text)) ? text : figure(name, Number(text)));
