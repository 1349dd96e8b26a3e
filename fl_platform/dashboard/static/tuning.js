// What a sweep found: the best so far, its settings in parallel coordinates, any two quantities, and which settings matter.
import { ask, button, choice, empty, field, folded, h } from "./dom.js";
import { Dots } from "./dots.js";
import { figure, nameOf, shortKey } from "./format.js";
import { Parallel } from "./parallel.js";
import { scaleOf } from "./scales.js";
import { Selection, anyOf } from "./selection.js";
import { ramp, styleColor } from "./theme.js";

const OTHER_KEYS = ["data.name", "data.dirichlet_omega", "cohort_size", "num_rounds", "seed"]; // have columns of their own in the run table
const SAME = { "test/top_accuracy": "top", "test/accuracy": "accuracy" }; // fields of the run table, which runs have from the first round on
const LEAST_RUNS = 10; // as the server has it
const MOST_AXES = 14;
const FIELDS = ["top", "accuracy", "forgetting", "seconds", "bytes", "round", "trial", "started", "end", "algorithm"];

export class TuningView {
  static defaults = { sweep: "", objective: "top", goal: "max", x: "", y: "", color: "" };

  constructor(app) {
    this.app = app;
    this.controls = h("div", { class: "bar" });
    this.progress = new Dots({ title: "Best so far", onOpen: (id) => app.open(id) });
    this.scatter = new Dots({ title: "Any two quantities", onOpen: (id) => app.open(id) });
    this.parallel = new Parallel({ onKeep: (ids) => app.keep(ids) });
    this.bars = h("div", { class: "importance" });
    this.importance = h("figure", { class: "card chart" }, h("figcaption", {}, "Importance of settings", button("Compute again", () => this.drawImportance(true), { class: "reset" })), this.bars);
    this.none = empty("");
    this.body = h("div", { class: "tuning" }, this.parallel.element, h("div", { class: "grid" }, this.progress.element, this.importance), this.scatter.element);
    this.element = h("div", {}, folded("Sweep and objective", this.controls), this.none, this.body);
  }

  get state() {
    return this.app.states.tuning;
  }

  columns() {
    return [];
  }

  query() {
    return [this.app.filters.query(), this.state.sweep ? anyOf("sweep", [this.state.sweep]) : ""].filter(Boolean).join(" ");
  }

  set(values) {
    this.app.setState("tuning", values);
  }

  // The objective of a newly chosen sweep is the one it was given.
  chooseSweep(name) {
    const sweep = this.app.sweeps.find((one) => one.name === name);
    this.set({ sweep: name, ...(sweep?.metric ? { objective: SAME[sweep.metric] || sweep.metric, goal: sweep.maximises ? "max" : "min" } : {}) });
  }

  async update() {
    const { objective, x, y, color } = this.state;
    const columns = [...new Set([objective, "trial", "end", "started", "algorithm", ...OTHER_KEYS, x, y, color].filter(Boolean))];
    this.selection = new Selection(await ask("select", { q: this.query(), columns: columns.join(",") }));
    const { selection } = this;
    const methods = selection.differing.includes("algorithm.name") ? ["algorithm"] : []; // by their labels
    this.settings = [...methods, ...OTHER_KEYS.filter((key) => selection.differing.includes(key)), ...selection.settings];
    this.drawControls();
    this.runs = selection.ids.map((id) => ({ id, ...Object.fromEntries(["trial", "end", "started", "algorithm"].map((name) => [name, selection.value(id, name)])), value: selection.value(id, objective),
      values: Object.fromEntries([objective, ...this.settings].map((name) => [name, selection.value(id, name)])) })).filter((run) => typeof run.value === "number");
    this.none.textContent = this.runs.length ? "" : `None of the ${selection.ids.length} shown runs has ${nameOf(objective)} yet.`;
    this.none.hidden = this.runs.length > 0;
    this.body.hidden = this.runs.length === 0;
    if (!this.runs.length) return;
    this.parallel.show(this.runs, [...this.settings.slice(0, MOST_AXES - 1), objective]);
    this.drawProgress();
    this.drawScatter();
    await this.drawImportance(false);
  }

  drawControls() {
    const sweeps = this.app.sweeps.filter((sweep) => !sweep.error).map((sweep) => [sweep.name, sweep.name]);
    const figures = [...new Set(["top", "accuracy", ...this.selection.figures])].filter((name) => !(name in SAME)).map((name) => [name, nameOf(name)]);
    const text = JSON.stringify([sweeps, figures, this.state]);
    if (text === this.drawn) return;
    this.drawn = text;
    this.controls.replaceChildren(
      field("Sweep", choice([["", "All shown runs"], ...sweeps], this.state.sweep, (value) => this.chooseSweep(value), "Sweep")),
      field("Objective", choice(figures, this.state.objective, (value) => this.set({ objective: value }), "Objective")),
      field("Goal", choice([["max", "as large as possible"], ["min", "as small as possible"]], this.state.goal, (value) => this.set({ goal: value }), "Goal")));
  }

  describe(run) {
    const { objective } = this.state;
    return [`${run.algorithm}${run.trial != null ? `, trial ${run.trial}` : ""} (${run.id})`, `${nameOf(objective)}: ${figure(objective, run.value)}`,
      ...this.settings.filter((key) => run.values[key] != null).map((key) => `${shortKey(key)} = ${run.values[key]}`), run.end === "stopped" ? "stopped early" : run.end];
  }

  drawProgress() {
    const { objective, goal } = this.state;
    const hasTrials = this.runs.every((run) => run.trial != null) && new Set(this.runs.map((run) => this.app.runs.get(run.id)?.sweep)).size === 1;
    const ordered = [...this.runs].sort((one, other) => (hasTrials ? one.trial - other.trial : one.started - other.started));
    const isBetter = (one, other) => (goal === "max" ? one > other : one < other);
    const path = [];
    let best = null;
    const dots = ordered.map((run, place) => {
      const x = hasTrials ? run.trial : place + 1;
      const counts = run.end === "finished" || run.end === "stopped" || run.end === "running" || run.end === "shared";
      if (counts && (best == null || isBetter(run.value, best.value))) best = run;
      if (best) path.push([x, best.value]);
      const color = styleColor({ finished: "--finished", shared: "--finished", running: "--running", diverged: "--diverged", failed: "--crashed", crashed: "--crashed" }[run.end] || "--interrupted");
      return { id: run.id, x, y: run.value, color, isCross: run.end === "stopped", text: this.describe(run) };
    });
    const stopped = ordered.filter((run) => run.end === "stopped").length;
    this.progress.show({ dots, path, xName: "trial", yName: objective, xLabel: hasTrials ? "Trial" : "Runs in the order of their start", yLabel: nameOf(objective) });
    this.progress.note.textContent = [best ? `Best: ${figure(objective, best.value)} (${best.id}).` : "", stopped ? `${stopped} of ${ordered.length} were stopped early (crosses).` : "None was stopped early."].join(" ");
  }

  drawScatter() {
    const { selection } = this;
    const { objective } = this.state;
    const [x, y, color] = [this.state.x || this.settings.find((key) => typeof this.runs[0].values[key] === "number") || "started", this.state.y || objective, this.state.color];
    const quantities = [...new Set([...this.settings, ...FIELDS, ...selection.figures])].filter((name) => !(name in SAME)).map((name) => [name, nameOf(name)]);
    const text = JSON.stringify([quantities, x, y, color]);
    if (text !== this.drawnScatter) {
      this.drawnScatter = text;
      this.scatter.controls.replaceChildren(
        field("Horizontal", choice(quantities, x, (value) => this.set({ x: value }), "Horizontal quantity")),
        field("Vertical", choice(quantities, y, (value) => this.set({ y: value }), "Vertical quantity")),
        field("Colour", choice([["", "none"], ...quantities], color, (value) => this.set({ color: value }), "Colour")));
    }
    const valueOf = (run, name) => (name in run.values ? run.values[name] : selection.value(run.id, name));
    const scale = color && scaleOf(color, this.runs.map((run) => valueOf(run, color)));
    const dots = this.runs.map((run) => ({ id: run.id, x: valueOf(run, x), y: valueOf(run, y), isCross: run.end === "stopped",
      color: scale ? ramp(scale.place(valueOf(run, color)) ?? 0) : styleColor("--accent"),
      text: [...this.describe(run).slice(0, 1), ...[...new Set([x, y, color])].filter(Boolean).map((name) => `${nameOf(name)}: ${figure(name, valueOf(run, name))}`)] }));
    this.scatter.show({ dots, xName: x, yName: y, xLabel: nameOf(x), yLabel: nameOf(y) });
    this.scatter.note.textContent = scale ? `Colour: ${nameOf(color)} from ${scale.ticks[0]?.[1] ?? "?"} (dark) to ${scale.ticks.at(-1)?.[1] ?? "?"} (yellow).` : "";
  }

  // Computed once per filter and objective: while a sweep runs, only on demand.
  async drawImportance(isForced) {
    const { objective } = this.state;
    if (this.runs.length < LEAST_RUNS) {
      this.asked = "";
      this.bars.replaceChildren(empty(`Importance needs at least ${LEAST_RUNS} runs with the objective; ${this.runs.length} of the shown have it.`));
      return;
    }
    const asked = JSON.stringify([this.query(), objective]);
    if (asked === this.asked && !isForced) return;
    this.asked = asked;
    this.bars.replaceChildren(empty("Computing …"));
    let found;
    try {
      found = await ask("importance", { q: this.query(), objective });
    } catch (error) {
      if (this.asked === asked) this.bars.replaceChildren(empty(error.message));
      return;
    }
    if (this.asked !== asked) return;
    const most = Math.max(...found.keys.map((one) => one.importance), 1e-9);
    const rows = found.keys.slice(0, 20).map((one) => {
      const bar = h("i", {});
      bar.style.width = `${Math.max(0, (100 * one.importance) / most)}%`;
      return h("tr", {}, h("th", { scope: "row", title: one.key }, shortKey(one.key)), h("td", { class: "bar-cell" }, bar), h("td", { class: "number" }, `${one.importance.toFixed(3)} ± ${one.spread.toFixed(3)}`));
    });
    this.bars.replaceChildren(h("table", {}, h("tbody", {}, rows)),
      found.keys.length > 20 ? h("p", { class: "quiet small" }, `${found.keys.length - 20} less important settings are not listed.`) : "",
      h("p", { class: found.r2 < 0.3 ? "small warning" : "quiet small" }, `n = ${found.n} runs. Drop of R² on held-out runs when a setting is shuffled (random forest, 5 folds, ± standard deviation); the forest itself explains R² = ${found.r2.toFixed(2)}. `,
        found.r2 < 0.3 ? "That is little: do not rely on this order. " : "", "It says what predicts the objective, not what causes it; settings that go together share their importance, runs that were stopped early count with what they reached, and the seed, where it varies, shows how large chance is."));
  }
}
