// Parallel coordinates: a line per run through the values of its settings. Dragging along an axis keeps what lies there.
import { button, h, svg } from "./dom.js";
import { counted, nameOf, shortKey } from "./format.js";
import { scaleOf } from "./scales.js";
import { ramp, styleColor } from "./theme.js";

const [TOP, BOTTOM, HEIGHT] = [34, 14, 340];

export class Parallel {
  // onKeep(ids) filters by the kept runs.
  constructor({ onKeep }) {
    this.brushes = new Map(); // name of an axis: [low, high] as places
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.axes = svg("svg", { class: "axes", role: "group", "aria-label": "Parallel coordinates: drag along an axis to keep the runs that pass there" });
    this.count = h("span", { class: "quiet" });
    this.keep = button("Filter by these", () => onKeep(this.kept().map((run) => run.id)), { hidden: true });
    this.free = button("Clear brushes", () => { this.brushes.clear(); this.draw(); }, { hidden: true });
    this.box = h("div", { class: "parallel" }, this.canvas, this.axes);
    this.element = h("figure", { class: "card chart" }, h("figcaption", {}, "Parallel coordinates", h("span", { class: "tools" }, this.count, this.keep, this.free)), h("div", { class: "scroll" }, this.box));
    new ResizeObserver(() => this.draw()).observe(this.element);
    document.addEventListener("themechange", () => this.draw());
  }

  // runs: [{id, values: {name: value}}]; names in the order of the axes, the objective last.
  show(runs, names) {
    Object.assign(this, { runs, names });
    this.scales = new Map(names.map((name) => [name, scaleOf(name, runs.map((run) => run.values[name]))]));
    for (const name of this.brushes.keys()) if (!this.scales.has(name)) this.brushes.delete(name);
    this.draw();
  }

  placeOf(run, name) {
    return this.scales.get(name).place(run.values[name]);
  }

  kept() {
    return this.runs.filter((run) => [...this.brushes].every(([name, [low, high]]) => {
      const place = this.placeOf(run, name);
      return place != null && place >= low && place <= high;
    }));
  }

  x(position) {
    const [left, right] = [70, 90];
    return this.names.length < 2 ? this.width / 2 : left + (position * (this.width - left - right)) / (this.names.length - 1);
  }

  y(place) {
    return TOP + (1 - place) * (HEIGHT - TOP - BOTTOM);
  }

  draw() {
    if (!this.runs || !this.element.offsetWidth) return;
    this.width = Math.max(this.element.offsetWidth - 30, 120 * this.names.length);
    this.box.style.width = `${this.width}px`;
    this.box.style.height = `${HEIGHT}px`;
    this.drawLines();
    this.drawAxes();
    const kept = this.kept().length;
    this.count.textContent = this.brushes.size ? `${kept} of ${this.runs.length} runs` : `${counted(this.runs.length, "run")}; drag along an axis`;
    this.keep.hidden = this.free.hidden = this.brushes.size === 0;
    this.keep.disabled = kept === 0;
  }

  drawLines() {
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: this.width * ratio, height: HEIGHT * ratio });
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${HEIGHT}px`;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    const kept = new Set(this.kept());
    const objective = this.names.at(-1);
    const rest = this.runs.filter((run) => !kept.has(run));
    const sorted = [...kept].sort((one, other) => (this.placeOf(one, objective) ?? -1) - (this.placeOf(other, objective) ?? -1));
    const strong = Math.max(0.15, Math.min(0.8, 60 / Math.max(sorted.length, 1)));
    for (const run of [...rest, ...sorted]) {
      const place = this.placeOf(run, objective);
      context.strokeStyle = kept.has(run) ? (place == null ? styleColor("--quiet") : ramp(place)) : styleColor("--line");
      context.globalAlpha = kept.has(run) ? strong : 0.35;
      context.lineWidth = kept.has(run) ? 1.5 : 1;
      context.beginPath();
      let isDown = false;
      this.names.forEach((name, position) => {
        const own = this.placeOf(run, name);
        if (own == null) isDown = false; // a setting that this run does not have
        else if (isDown) context.lineTo(this.x(position), this.y(own));
        else context.moveTo(this.x(position), this.y(own));
        isDown = own != null;
      });
      context.stroke();
    }
  }

  drawAxes() {
    this.axes.setAttribute("width", this.width);
    this.axes.setAttribute("height", HEIGHT);
    this.axes.replaceChildren(...this.names.map((name, position) => this.axis(name, this.x(position), position === this.names.length - 1)));
  }

  // As many characters of an axis's name as fit between two axes.
  roomForName() {
    return this.names.length < 2 ? 20 : Math.max(6, Math.min(20, Math.floor((this.x(1) - this.x(0)) / 7)));
  }

  axis(name, x, isObjective) {
    const scale = this.scales.get(name);
    const label = isObjective ? nameOf(name) : shortKey(name);
    const group = svg("g", {}, svg("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM, class: "axis" }),
      svg("text", { x, y: 16, "text-anchor": "middle", class: isObjective ? "name strong" : "name" }, label.length > this.roomForName() ? `…${label.slice(1 - this.roomForName())}` : label, svg("title", {}, `${name}${scale.isLog ? " (logarithmic)" : ""}`)));
    const every = Math.ceil(scale.ticks.length / 14);
    scale.ticks.forEach(([place, text], index) => {
      if (index % every) return;
      group.append(svg("text", { x: x + 6, y: this.y(place) + 4, class: "tick" }, text.length > 14 ? `${text.slice(0, 13)}…` : text, svg("title", {}, text)));
    });
    const brush = this.brushes.get(name);
    if (brush) group.append(svg("rect", { x: x - 9, width: 18, y: this.y(Math.min(1, brush[1])), height: Math.max(2, this.y(Math.max(0, brush[0])) - this.y(Math.min(1, brush[1]))), class: "brush" }));
    group.append(svg("rect", { x: x - 14, width: 28, y: TOP - 6, height: HEIGHT - TOP - BOTTOM + 12, class: "handle", "data-axis": name, onpointerdown: (event) => this.drag(event, name) }));
    return group;
  }

  drag(event, name) {
    event.preventDefault();
    const box = this.axes.getBoundingClientRect();
    const place = (moved) => 1 - (moved.clientY - box.top - TOP) / (HEIGHT - TOP - BOTTOM);
    const from = place(event);
    const move = (moved) => {
      const ends = [from, place(moved)].sort((one, other) => one - other);
      if (ends[1] - ends[0] < 0.01) this.brushes.delete(name); // a click takes the brush away
      else this.brushes.set(name, ends);
      this.draw();
    };
    const end = (moved) => {
      move(moved);
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
  }
}
