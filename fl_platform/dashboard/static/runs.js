// The first view: sweeps as cards, runs as a table.
import { button, choice, download, field, h, toCsv } from "./dom.js";
import { duration, figure, nameOf } from "./format.js";
import { ColumnChooser } from "./columns.js";
import { COLUMNS, RunTable, columnOf } from "./table.js";

const GROUP_FIELDS = ["algorithm", "scenario", "sweep", "status"];

export class SweepCards {
  constructor({ onOpen, onTune }) {
    Object.assign(this, { onOpen, onTune });
    this.element = h("div", { class: "sweeps" });
  }

  show(sweeps) {
    const text = JSON.stringify(sweeps);
    if (text === this.text) return;
    this.text = text;
    this.element.replaceChildren(...sweeps.map((sweep) => this.card(sweep)));
  }

  card(sweep) {
    if (sweep.error) return h("article", { class: "card sweep" }, h("h3", {}, sweep.name), h("p", { class: "empty" }, sweep.error));
    const counts = Object.entries(sweep.counts).filter(([, count]) => count);
    const bar = h("div", { class: "progress", role: "progressbar", "aria-valuenow": sweep.done, "aria-valuemax": sweep.total, "aria-label": sweep.name });
    for (const [state, count] of counts) {
      const part = h("i", { "data-status": state, title: `${count} ${state}` });
      part.style.flexGrow = count;
      bar.append(part);
    }
    const left = sweep.seconds_left != null && sweep.is_live ? `about ${duration(sweep.seconds_left)} left` : "";
    const best = sweep.best && h("p", {}, `best ${nameOf(sweep.metric)} `, h("b", {}, figure(sweep.metric, sweep.best.value)), " ",
      button(sweep.best.run, () => this.onOpen(sweep.best.run), { class: "link mono", title: sweep.best.point }));
    const failures = sweep.failures.length ? h("details", {}, h("summary", {}, `${sweep.failures.length} failed`),
      h("ul", { class: "notes" }, sweep.failures.map((line) => h("li", {}, line)))) : null;
    const state = sweep.is_live ? "running" : sweep.done >= sweep.total ? "done" : "stopped";
    return h("article", { class: "card sweep" },
      h("h3", {}, sweep.name, h("span", { class: sweep.is_live ? "pill on" : "pill" }, state)),
      bar,
      h("p", { class: "quiet" }, [`${sweep.done} of ${sweep.total} done`, ...counts.map(([name, count]) => `${count} ${name}`), left].filter(Boolean).join(" · ")),
      best, button("Look at its tuning", () => this.onTune(sweep.name), { class: "link" }), failures);
  }
}

export class RunsView {
  static defaults = { sort: "started,-1", group: "", then: "" };

  constructor(app) {
    this.app = app;
    this.cards = new SweepCards({ onOpen: (id) => app.open(id), onTune: (name) => app.tune(name) });
    this.plot = button("Plot ticked", () => app.plotPicked());
    this.compare = button("Compare ticked", () => app.compare([...app.picked]));
    this.untick = button("Untick", () => { app.picked.clear(); app.changed(); });
    this.table = new RunTable({ onOpen: (run) => app.open(run.id), picked: app.picked, onPick: () => { this.drawButtons(); app.remember(); },
      onSort: (sort) => app.setState("runs", { sort: sort.join(",") }, false), settingsOf: (id) => app.selection.settingsOf(id), differing: (runs) => this.differing(runs) });
    this.chooser = new ColumnChooser(() => app.changed());
    this.grouping = h("div", { class: "row" });
    this.title = h("h2", {}, "Runs");
    this.element = h("div", {}, this.cards.element,
      h("div", { class: "bar" }, this.title, this.grouping, this.chooser.element, this.plot, this.compare, this.untick, button("CSV", () => this.save(), { title: "Save the table" })), this.table.element);
  }

  get state() {
    return this.app.states.runs;
  }

  groups() {
    return [this.state.group, this.state.then].filter((key, place, all) => key && all.indexOf(key) === place);
  }

  // What the runs of a group differ in besides the seed; of several algorithms not their own options.
  differing(runs) {
    const { selection } = this.app;
    const values = { algorithm: (run) => run.algorithm, scenario: (run) => run.scenario, ...Object.fromEntries(selection.settings.map((key) => [key, (run) => selection.value(run.id, key)])) };
    const differs = (key) => runs.some((run) => values[key](run) !== values[key](runs[0]));
    const isMixed = differs("algorithm");
    return Object.keys(values).filter((key) => !(isMixed && key.startsWith("algorithm.")) && differs(key));
  }

  // Columns that the server has to send.
  columns() {
    const own = new Set(COLUMNS.map((column) => column.key));
    return [...this.chooser.names.filter((name) => !own.has(name)), ...this.groups().filter((key) => !GROUP_FIELDS.includes(key))];
  }

  drawButtons() {
    const count = this.app.picked.size;
    for (const [control, label] of [[this.plot, "Plot"], [this.compare, "Compare"]]) {
      control.disabled = count < (label === "Compare" ? 2 : 1);
      control.textContent = count ? `${label} ${count} ticked` : `${label} ticked`;
    }
    this.untick.hidden = count === 0;
  }

  drawGrouping(selection) {
    const keys = [...GROUP_FIELDS, ...selection.differing.filter((key) => !GROUP_FIELDS.includes(key))];
    const text = JSON.stringify([keys, this.state]);
    if (text === this.drawn) return;
    this.drawn = text;
    const control = (name, none, label) => choice([["", none], ...keys.map((key) => [key, key])], this.state[name], (value) => this.app.setState("runs", { [name]: value }), label);
    this.grouping.replaceChildren(field("Group by", control("group", "nothing", "Group by")), this.state.group ? field("then by", control("then", "nothing", "Then group by")) : "");
  }

  update(selection) {
    this.cards.show(this.app.sweeps);
    this.chooser.offer(selection);
    this.drawGrouping(selection);
    this.drawButtons();
    const [key, direction] = this.state.sort.split(",");
    this.table.setSort([key, Number(direction) < 0 ? -1 : 1]);
    this.table.setColumns(this.chooser.names.map((name) => columnOf(name, (id, other) => this.app.selection.value(id, other))));
    this.table.groups = this.groups().map((name) => ({ key: name, valueOf: GROUP_FIELDS.includes(name) ? (run) => run[name] : (run) => selection.value(run.id, name) }));
    this.table.show(this.app.shown());
  }

  save() {
    const { columns } = this.table;
    const rows = this.app.shown().map((run) => columns.map((column) => this.table.valueOf(column, run)));
    download("runs.csv", toCsv([columns.map((column) => column.key), ...rows]));
  }
}
