"use strict";
// The run table: sorted by any column; a row's cells are made again only when the run changed.
FL.COLUMNS = [
  { key: "status", label: "Status", cell: (run) => FL.status(run.status) },
  { key: "algorithm", label: "Algorithm", cell: (run) => FL.algorithm(run) },
  { key: "scenario", label: "Scenario" },
  { key: "seed", label: "Seed", number: true },
  { key: "round", label: "Round", number: true, cell: (run) => FL.rounds(run) },
  { key: "top", label: "Top acc.", number: true, cell: (run) => FL.percent(run.top) },
  { key: "accuracy", label: "Last acc.", number: true, cell: (run) => FL.percent(run.accuracy) },
  { key: "forgetting", label: "Forgetting", number: true, cell: (run) => FL.percent(run.forgetting) },
  { key: "seconds", label: "Time", number: true, cell: (run) => FL.duration(run.seconds) },
  { key: "settings", label: "Settings", cell: (run) => FL.h("span", { class: "mono cut", title: FL.settings(run.settings) }, FL.settings(run.settings)), order: (run) => FL.settings(run.settings) },
  { key: "started", label: "Started", number: true, cell: (run) => FL.time(run.started) },
  { key: "id", label: "Run", cell: (run) => FL.h("span", { class: "mono" }, run.id) },
];

FL.algorithm = (run) => {
  const dot = FL.h("i", { class: "dot" });
  dot.style.backgroundColor = run.color;
  return FL.h("span", {}, dot, run.algorithm);
};

FL.rounds = (run) => {
  const text = run.rounds ? `${run.round} / ${run.rounds}` : String(run.round);
  if (run.status !== "running" || !run.rounds) return text;
  const bar = FL.h("span", { class: "thin" }, FL.h("i", {}));
  bar.firstChild.style.width = `${Math.min(100, (100 * run.round) / run.rounds)}%`;
  return FL.h("span", {}, text, bar);
};

FL.RunTable = class {
  // onOpen(run) shows a run; onPick(ids), if given, adds a column of boxes to pick runs with.
  constructor({ onOpen, onPick = null, sort = ["started", -1], columns = FL.COLUMNS }) {
    Object.assign(this, { onOpen, onPick, columns, sort });
    this.picked = new Set();
    this.made = new Map();
    this.limit = 200; // a browser takes half a second to lay out a thousand lines
    this.body = FL.h("tbody");
    this.head = FL.h("tr");
    this.more = FL.h("button", { type: "button", class: "more", hidden: true, onclick: () => this.showMore() });
    this.element = FL.h("div", { class: "card scroll" }, FL.h("table", { class: "runs" }, FL.h("thead", {}, this.head), this.body), this.more);
    this.drawHead();
  }

  drawHead() {
    this.head.replaceChildren(...[this.onPick ? FL.h("th", { class: "pick" }) : null, ...this.columns.map((column) => {
      const direction = this.sort[0] === column.key ? this.sort[1] : 0;
      const order = { "-1": "descending", 0: "none", 1: "ascending" }[direction];
      const mark = { "-1": " ↓", 0: "", 1: " ↑" }[direction];
      return FL.h("th", { class: column.number ? "number" : null, "aria-sort": order, scope: "col" },
        FL.h("button", { type: "button", onclick: () => this.sortBy(column) }, column.label + mark));
    })].filter(Boolean));
  }

  sortBy(column) {
    const first = column.number ? -1 : 1;
    this.sort = [column.key, this.sort[0] === column.key ? -this.sort[1] : first];
    this.drawHead();
    this.show(this.runs);
  }

  show(runs) {
    this.runs = runs;
    const [key, direction] = this.sort;
    const column = this.columns.find((one) => one.key === key);
    const order = column.order || ((run) => run[key]);
    const sorted = runs.map((run) => [order(run), run]).sort(([a, one], [b, other]) => {
      if (a == null || b == null) return (a == null) - (b == null); // what is not known comes last either way
      const compared = typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
      return direction * compared || one.id.localeCompare(other.id);
    });
    const lines = sorted.slice(0, this.limit).map(([, run]) => this.line(run));
    const stays = lines.length === this.body.children.length && lines.every((line, place) => line === this.body.children[place]);
    if (!stays) this.body.replaceChildren(...lines);
    this.more.hidden = sorted.length <= this.limit;
    this.more.textContent = `Show more (${sorted.length - this.limit} are not shown)`;
  }

  showMore() {
    this.limit += 200;
    this.show(this.runs);
  }

  line(run) {
    const kept = this.made.get(run.id);
    if (kept && kept.run === run) return kept.element;
    const cells = this.columns.map((column) =>
      FL.h("td", { class: column.number ? "number" : null }, column.cell ? column.cell(run) : run[column.key] ?? ""));
    const open = FL.h("tr", { tabindex: 0, "data-id": run.id, onclick: () => this.onOpen(run),
      onkeydown: (event) => { if (event.key === "Enter") this.onOpen(run); } }, this.onPick ? this.box(run) : null, cells);
    this.made.set(run.id, { run, element: open });
    return open;
  }

  box(run) {
    const pick = (event) => {
      if (event.target.checked) this.picked.add(run.id);
      else this.picked.delete(run.id);
      this.onPick([...this.picked]);
    };
    const stop = (event) => event.stopPropagation();
    return FL.h("td", { class: "pick", onclick: stop },
      FL.h("input", { type: "checkbox", "aria-label": `Pick ${run.id}`, checked: this.picked.has(run.id), onchange: pick }));
  }
};
