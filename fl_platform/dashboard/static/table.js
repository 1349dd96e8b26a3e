// The run table: any columns, sorted by any of them, grouped by up to two keys; a row is made again only when it changed.
import { button, h } from "./dom.js";
import { compareText, counted, deviation, duration, figure, mean, percent, time } from "./format.js";
import { onGround } from "./theme.js";

export const statusMark = (run) => h("span", { class: "status", "data-status": run.status }, run.ending);

export function algorithmMark(run) {
  const dot = h("i", { class: "dot" });
  dot.style.backgroundColor = onGround(run.color);
  return h("span", { class: "algorithm", title: run.algorithm }, dot, run.algorithm);
}

function roundMark(run) {
  const text = run.rounds ? `${run.round} / ${run.rounds}` : String(run.round);
  if (run.status !== "running" || !run.rounds) return text;
  const bar = h("span", { class: "thin" }, h("i", {}));
  bar.firstChild.style.width = `${Math.min(100, (100 * run.round) / run.rounds)}%`;
  return h("span", {}, text, bar);
}

const cut = (text) => h("span", { class: "mono cut", title: text }, text);

// Columns that every table can have. `extra` ones are not shown on a narrow screen.
export const COLUMNS = [
  { key: "status", label: "Status", extra: true, cell: (run) => statusMark(run) },
  { key: "algorithm", label: "Algorithm", cell: algorithmMark },
  { key: "scenario", label: "Scenario", extra: true },
  { key: "seed", label: "Seed", number: true, narrow: true },
  { key: "round", label: "Round", number: true, extra: true, cell: roundMark },
  { key: "top", label: "Top acc.", number: true, cell: (run) => percent(run.top), write: percent },
  { key: "accuracy", label: "Last acc.", number: true, cell: (run) => percent(run.accuracy), write: percent },
  { key: "forgetting", label: "Forgetting", number: true, extra: true, cell: (run) => percent(run.forgetting), write: percent },
  { key: "seconds", label: "Time", number: true, extra: true, cell: (run) => duration(run.seconds), write: duration },
  { key: "settings", label: "Settings", extra: true, cell: (run, table) => cut(table.settingsOf(run.id)), value: (run, table) => table.settingsOf(run.id) },
  { key: "started", label: "Started", number: true, extra: true, cell: (run) => time(run.started), write: () => "" },
  { key: "id", label: "Run", extra: true, cell: (run) => h("span", { class: "mono" }, run.id) },
];

// A column for any other quantity, whose values `valueOf(id, name)` knows.
export const columnOf = (name, valueOf) => COLUMNS.find((column) => column.key === name) || {
  key: name, label: name, extra: true, isAsked: true, number: true, value: (run) => valueOf(run.id, name),
  cell: (run) => figure(name, valueOf(run.id, name)), write: (value) => figure(name, value),
};

export class RunTable {
  // onOpen(run) shows a run; picked, if given, is the set of ticked ids and onPick() tells that it changed.
  constructor({ onOpen, picked = null, onPick = null, onSort = () => {}, sort = ["started", -1], columns = COLUMNS, settingsOf = () => "", differing = () => [] }) {
    Object.assign(this, { onOpen, picked, onPick, onSort, sort, columns, settingsOf, differing });
    this.groups = []; // [{key, valueOf}]
    this.opened = new Set();
    this.made = new Map();
    this.runs = [];
    this.limit = 200; // a browser takes half a second to lay out a thousand lines
    this.body = h("tbody");
    this.head = h("tr");
    this.more = button("", () => this.showMore(), { class: "more", hidden: true });
    this.element = h("div", { class: "card scroll" }, h("table", { class: "runs", onkeydown: (event) => this.walk(event) }, h("thead", {}, this.head), this.body), this.more);
    this.drawHead();
  }

  setColumns(columns) {
    if (columns.map((column) => column.key).join() === this.columns.map((column) => column.key).join()) return;
    this.columns = columns;
    this.made.clear();
    this.drawHead();
  }

  drawHead() {
    const all = this.picked && h("th", { class: "pick" }, h("input", { type: "checkbox", "aria-label": "Tick all shown runs", onchange: (event) => this.pick(this.runs, event.target.checked) }));
    this.head.replaceChildren(...[all, ...this.columns.map((column) => {
      const direction = this.sort[0] === column.key ? this.sort[1] : 0;
      const order = { "-1": "descending", 0: "none", 1: "ascending" }[direction];
      const mark = { "-1": " ↓", 0: "", 1: " ↑" }[direction];
      return h("th", { class: this.classOf(column), "aria-sort": order, scope: "col" }, button(column.label + mark, () => this.sortBy(column)));
    })].filter(Boolean));
  }

  classOf(column) {
    return [column.number ? "number" : "", column.extra ? "extra" : "", column.narrow ? "narrow" : ""].filter(Boolean).join(" ") || null;
  }

  valueOf(column, run) {
    return column.value ? column.value(run, this) : run[column.key];
  }

  sortBy(column) {
    const first = column.number ? -1 : 1;
    this.sort = [column.key, this.sort[0] === column.key ? -this.sort[1] : first];
    this.drawHead();
    this.show(this.runs);
    this.onSort(this.sort);
  }

  setSort(sort) {
    if (sort.join() === this.sort.join()) return;
    this.sort = sort;
    this.drawHead();
  }

  // Pairs of [value, thing] in the order of the heading; what is not known comes last either way.
  ordered(pairs, tieOf) {
    const direction = this.sort[1];
    return pairs.sort(([a, one], [b, other]) => {
      if (a == null || b == null) return (a == null) - (b == null);
      const compared = typeof a === "number" && typeof b === "number" ? a - b : compareText(a, b);
      return direction * compared || compareText(tieOf(one), tieOf(other));
    }).map(([, thing]) => thing);
  }

  show(runs) {
    this.runs = runs;
    const column = this.columns.find((one) => one.key === this.sort[0]) || columnOf(this.sort[0], () => null);
    const lines = [];
    this.total = 0;
    this.fill(lines, runs, column, 0, []);
    const stays = lines.length === this.body.children.length && lines.every((line, place) => line === this.body.children[place]);
    const focused = stays ? null : document.activeElement?.closest?.("tr")?.dataset?.id;
    if (!stays) this.body.replaceChildren(...lines);
    if (focused) [...this.body.children].find((line) => line.dataset.id === focused)?.focus();
    this.more.hidden = this.total <= this.limit;
    this.more.textContent = `Show more (${this.total - this.limit} are not shown)`;
    this.drawPicks();
  }

  // Lines of runs, or of the groups of one level with what is below those that are open.
  fill(lines, runs, column, level, path) {
    if (level === this.groups.length) {
      const sorted = this.ordered(runs.map((run) => [this.valueOf(column, run), run]), (run) => run.id);
      this.total += sorted.length;
      for (const run of sorted) if (lines.length < this.limit) lines.push(this.line(run, level));
      return;
    }
    const members = new Map();
    for (const run of runs) {
      const value = this.groups[level].valueOf(run) ?? "–";
      if (!members.has(value)) members.set(value, []);
      members.get(value).push(run);
    }
    const keyed = [...members].map(([value, group]) => [this.summary(column, group).value ?? value, { value, group }]);
    for (const { value, group } of this.ordered(keyed, (one) => one.value)) {
      const own = [...path, `${this.groups[level].key}=${value}`];
      this.total += 1;
      if (lines.length < this.limit) lines.push(this.groupLine(value, group, level, own));
      if (this.opened.has(own.join("\n"))) this.fill(lines, group, column, level + 1, own);
    }
  }

  // Mean and standard deviation of a column over runs; nothing for one that is not of numbers.
  summary(column, runs) {
    if (!column.number || column.key === "seed") return {};
    const values = runs.map((run) => this.valueOf(column, run)).filter((value) => typeof value === "number");
    return values.length ? { value: mean(values), spread: deviation(values) } : {};
  }

  groupLine(value, runs, level, path) {
    const key = path.join("\n");
    const isOpen = this.opened.has(key);
    const turn = () => {
      if (!this.opened.delete(key)) this.opened.add(key);
      this.show(this.runs);
    };
    const [first, ...rest] = this.columns;
    const yields = first?.extra ? rest.find((column) => !column.extra) : null; // its place is the label's on a narrow screen
    const cells = rest.map((column) => {
      const { value: middle, spread } = this.summary(column, runs);
      const write = column.write || ((number) => figure(column.key, number));
      const text = middle == null || !write(middle) ? "" : spread ? `${write(middle)} ± ${write(spread)}` : write(middle);
      return h("td", { class: [this.classOf(column), column === yields ? "extra" : ""].filter(Boolean).join(" ") || null }, text);
    });
    const mixed = this.differing(runs); // a mean over these says little
    const label = h("td", { class: `level-${level}` }, button(`${isOpen ? "▾" : "▸"} ${path.at(-1)}`, turn, { class: "link", "aria-expanded": String(isOpen) }), h("small", { class: "quiet" }, ` ${counted(runs.length, "run")}`), mixed.length ? h("small", { class: "warning" }, ` that differ in ${mixed.join(", ")}`) : null);
    const isPicked = this.picked && runs.every((run) => this.picked.has(run.id));
    const box = this.picked && h("td", { class: "pick" }, h("input", { type: "checkbox", checked: isPicked, "aria-label": `Tick ${path.at(-1)}`, onchange: (event) => this.pick(runs, event.target.checked) }));
    return h("tr", { class: "group", tabindex: 0, "data-id": `group ${key}`, onkeydown: (event) => { if (event.key === "Enter" && event.target.tagName === "TR") turn(); } }, box, first ? label : null, cells);
  }

  showMore() {
    this.limit += 200;
    this.show(this.runs);
  }

  line(run, level) {
    const asked = this.columns.filter((column) => column.isAsked || column.key === "settings").map((column) => this.valueOf(column, run)).join("\n");
    const kept = this.made.get(run.id);
    if (kept && kept.run === run && kept.asked === asked && kept.level === level) return kept.element;
    const cells = this.columns.map((column, place) => h("td", { class: [this.classOf(column), place === 0 ? `level-${level}` : ""].filter(Boolean).join(" ") || null },
      column.cell ? column.cell(run, this) : String(run[column.key] ?? "")));
    const element = h("tr", { tabindex: 0, "data-id": run.id, onclick: () => this.onOpen(run),
      onkeydown: (event) => { if (event.key === "Enter") this.onOpen(run); } }, this.picked ? this.box(run) : null, cells);
    this.made.set(run.id, { run, asked, level, element });
    return element;
  }

  box(run) {
    return h("td", { class: "pick", onclick: (event) => event.stopPropagation() },
      h("input", { type: "checkbox", tabindex: -1, "aria-label": `Tick ${run.id}`, checked: this.picked.has(run.id), onchange: (event) => this.pick([run], event.target.checked) }));
  }

  pick(runs, isOn) {
    for (const run of runs) {
      if (isOn) this.picked.add(run.id);
      else this.picked.delete(run.id);
    }
    if (this.groups.length) this.show(this.runs);
    this.drawPicks();
    this.onPick();
  }

  drawPicks() {
    if (!this.picked) return;
    for (const line of this.body.children) {
      const box = line.querySelector(".pick input");
      if (!line.classList.contains("group")) box.checked = this.picked.has(line.dataset.id);
    }
    const ticked = this.runs.filter((run) => this.picked.has(run.id)).length;
    const all = this.head.querySelector(".pick input");
    [all.checked, all.indeterminate] = [ticked > 0 && ticked === this.runs.length, ticked > 0 && ticked < this.runs.length];
  }

  // Arrow keys move between rows, the space bar ticks one.
  walk(event) {
    const line = event.target.closest("tbody tr");
    if (!line || !event.target.matches("tr, input")) return;
    const next = { ArrowDown: line.nextElementSibling, ArrowUp: line.previousElementSibling, j: line.nextElementSibling, k: line.previousElementSibling }[event.key];
    if (next) next.focus();
    else if (event.key === " " && event.target === line) line.querySelector(".pick input")?.click();
    else return;
    event.preventDefault();
  }
}
