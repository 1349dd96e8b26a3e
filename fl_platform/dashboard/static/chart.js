// One chart: lines with bands, a legend that switches lines, figures at the cursor, zoom by dragging, files to take away.
import { button, choice, empty, h, menu, svg } from "./dom.js";
import { bytes, duration, figure, isShare, nameOf, plain, tick } from "./format.js";
import { onGround, styleColor } from "./theme.js";
import { saveCsv, savePng, saveSvg } from "./chart_files.js";

const STEPS = []; // of axes; uPlot's own end at 1e-16, and residuals are smaller
for (let power = -30; power <= 30; power += 1) for (const lead of [1, 2, 2.5, 5]) STEPS.push(Number(`${lead}e${power}`));
const WHOLE_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000];
const MOST_IN_TIP = 40;
const TINY = 1e-5;
const raised = (power) => [...String(power)].map((digit) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(digit)]).join("");
export const AXIS_NAMES = { rounds: "Round", bytes: "Bytes communicated", seconds: "Seconds" };

// A line as it is drawn: its colour, width and dashes.
export function swatch(line) {
  const sample = svg("line", { x1: 1, y1: 5, x2: 35, y2: 5, stroke: onGround(line.color), "stroke-width": line.width, "stroke-dasharray": line.dash.join(" ") });
  return svg("svg", { class: "swatch", width: 36, height: 10, "aria-hidden": "true" }, sample);
}

// Where a linear axis begins and ends: at 0 where that is near, with some air, never a span of nothing.
export function niceRange(low, high, share = false) {
  if (low == null || high == null) return [0, 1];
  if (low === high) {
    if (low === 0) return [0, 1];
    return low > 0 ? [0, share ? Math.min(1, 1.2 * low) : 1.2 * low] : [1.2 * low, 0];
  }
  const air = 0.05 * (high - low);
  const start = low >= 0 && low < 0.25 * high ? 0 : low - air;
  return [low >= 0 ? Math.max(0, start) : start, share && high <= 1 ? Math.min(1, high + air) : high + air];
}

export class Chart {
  // onZoom() may fetch finer data; without it the chart zooms into what it has.
  constructor({ title = "", height = 300, onZoom = null } = {}) {
    Object.assign(this, { onZoom, height, zoom: null, hidden: new Set(), plot: null, log: { x: false, y: false } });
    this.body = h("div", { class: "plot", tabindex: 0, role: "group", onkeydown: (event) => this.walk(event) });
    this.legend = h("div", { class: "legend" });
    this.note = h("p", { class: "quiet small" });
    this.reset = button("Reset zoom", () => this.setZoom(null), { class: "reset", hidden: true });
    this.title = h("span", {}, title);
    this.tip = h("div", { class: "tip", hidden: true });
    const scale = (name, label) => choice([["", `${label}: linear`], ["log", `${label}: logarithmic`]], "", (value) => this.setLog(name, value === "log"), `${label} axis`);
    const tools = menu("⋯", scale("y", "Vertical"), scale("x", "Horizontal"),
      button("Save as PNG", () => savePng(this)), button("Save as SVG", () => saveSvg(this)), button("Save as CSV", () => saveCsv(this)));
    tools.summary.setAttribute("aria-label", `Axes and files of ${title}`);
    this.element = h("figure", { class: "card chart" }, h("figcaption", {}, this.title, h("span", { class: "tools" }, this.reset, tools.element)), this.body, this.legend, this.note);
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.body);
    this.onTheme = () => { if (this.plot) this.redraw(); };
    document.addEventListener("themechange", this.onTheme);
  }

  // data: {lines, left_out}; metric and axis say how figures are written.
  show(data, metric, axis = "rounds") {
    Object.assign(this, { data, metric, axis });
    this.setFactor();
    const shape = JSON.stringify([metric, axis, this.power, data.lines.map((line) => [line.label, line.color, line.dash, "low" in line, "raw" in line])]);
    this.body.setAttribute("aria-label", `${this.title.textContent}: ${nameOf(metric)}, ${data.lines.length} lines; arrow keys move the cursor`);
    this.drawLegend();
    if (!data.lines.length) {
      this.destroyPlot();
      this.body.replaceChildren(empty(`No run has ${nameOf(metric)} yet.`));
    } else if (shape === this.shape && this.plot) {
      this.plot.setData(this.columns());
    } else {
      this.build();
    }
    this.shape = data.lines.length ? shape : null;
    this.drawNote();
  }

  // uPlot finds no steps for an axis of values near 1e-16: tiny ones are drawn as multiples of a power of ten.
  setFactor() {
    const most = this.data.lines.reduce((found, line) => (line.high || line.mean).reduce((more, value) => Math.max(more, Math.abs(value ?? 0)), found), 0);
    this.power = most > 0 && most < TINY && !this.log.y ? Math.floor(Math.log10(most)) : 0;
    this.factor = 10 ** -this.power;
  }

  drawNote() {
    const { lines, left_out: left } = this.data;
    const mixed = [...new Set(lines.flatMap((line) => line.averages))];
    const values = lines.flatMap((line) => line.mean);
    const lost = this.log.y ? values.filter((value) => value != null && value <= 0).length : 0;
    this.note.textContent = [
      left ? `${left} more lines are not drawn: filter, or group by fewer keys.` : "",
      mixed.length ? `Lines average runs that differ in ${mixed.join(", ")}.` : "",
      values.length && values.every((value) => value === 0) ? "All values are 0." : "",
      lost ? `${lost} points of 0 or less have no place on a logarithmic axis.` : "",
    ].filter(Boolean).join(" ");
    this.note.classList.toggle("warning", mixed.length > 0);
  }

  columns() {
    const times = this.factor === 1 ? (value) => value : (value) => (value == null ? null : this.factor * value);
    const fit = (values, name) => (this.log[name] ? values.map((value) => (value > 0 ? times(value) : null)) : values.map(times));
    const tables = this.data.lines.map((line) => {
      const own = [line.x, fit(line.mean, "y")];
      if ("low" in line) own.push(fit(line.low, "y"), fit(line.high, "y"));
      return own;
    });
    for (const line of this.data.lines) if (line.raw) tables.push([line.raw.x, fit(line.raw.mean, "y")]);
    const kept = this.log.x ? tables.map((table) => this.positive(table)) : tables;
    return kept.length === 1 ? kept[0] : uPlot.join(kept);
  }

  positive(table) {
    const places = table[0].map((x, place) => place).filter((place) => table[0][place] > 0);
    return table.map((column) => places.map((place) => column[place]));
  }

  series() {
    const [series, bands] = [[{}], []];
    this.places = [];
    const faint = this.data.lines.length - this.hidden.size > 6 ? "0f" : "26"; // many bands would hide the lines
    for (const line of this.data.lines) {
      const [show, stroke] = [!this.hidden.has(line.label), onGround(line.color)];
      this.places.push(series.length);
      series.push({ label: line.label, stroke, width: line.width, dash: line.dash, show, points: { show: line.x.length === 1 } });
      if ("low" in line) {
        const edge = { stroke: "transparent", width: 0, points: { show: false }, show };
        series.push({ ...edge }, { ...edge });
        bands.push({ series: [series.length - 1, series.length - 2], fill: `${stroke}${faint}` });
      }
    }
    for (const line of this.data.lines) {
      if (line.raw) series.push({ stroke: `${onGround(line.color)}55`, width: 1, show: !this.hidden.has(line.label), points: { show: false } });
    }
    return { series, bands };
  }

  axes() {
    const font = "12px system-ui, sans-serif";
    const look = { stroke: styleColor("--quiet"), font, labelFont: font, labelGap: 2, labelSize: 18, grid: { stroke: styleColor("--grid"), width: 1 }, ticks: { show: false } };
    const along = { rounds: tick, bytes, seconds: (value) => tick(value) }[this.axis];
    const write = (value) => (this.metric.endsWith("bytes") ? bytes(value) : tick(value, isShare(this.metric)));
    const size = (plot, values) => 14 + 7 * Math.max(3, ...(values || []).map((text) => text.length));
    return [
      { ...look, label: AXIS_NAMES[this.axis], size: 30, incrs: this.log.x ? undefined : this.axis === "rounds" ? WHOLE_STEPS : STEPS,
        values: (plot, values) => values.map((value) => (value == null ? "" : along(value))) },
      { ...look, label: nameOf(this.metric) + (this.power ? ` (×10${raised(this.power)})` : ""), size, incrs: this.log.y ? undefined : STEPS, values: (plot, values) => values.map((value) => (value == null ? "" : write(value))) },
    ];
  }

  build() {
    this.destroyPlot();
    const logRange = (plot, low, high) => (low > 0 && high > 0 ? uPlot.rangeLog(low, high, 10, false) : [0.1, 1]);
    const across = (plot, low, high) => this.zoom || (low === high ? (this.log.x ? [low / 2, 2 * low] : [low - 1, high + 1]) : [low, high]);
    const options = {
      width: Math.max(this.body.offsetWidth, 100),
      height: this.height,
      legend: { show: false },
      scales: {
        x: { time: false, distr: this.log.x ? 3 : 1, range: across },
        y: { distr: this.log.y ? 3 : 1, range: this.log.y ? logRange : (plot, low, high) => niceRange(this.metric.startsWith("system/") ? 0 : low, high, isShare(this.metric)) },
      },
      axes: this.axes(),
      ...this.series(),
      cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false }, bind: { dblclick: () => () => this.setZoom(null) } },
      hooks: { setSelect: [(plot) => this.select(plot)], setCursor: [(plot) => this.point(plot)] },
    };
    this.body.replaceChildren();
    this.plot = new uPlot(options, this.columns(), this.body);
    this.body.append(this.tip);
    this.tip.hidden = true;
    this.plot.over.addEventListener("mouseleave", () => { this.tip.hidden = true; });
  }

  destroyPlot() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
  }

  destroy() {
    this.watcher.disconnect();
    document.removeEventListener("themechange", this.onTheme);
    this.destroyPlot();
  }

  resize() {
    if (this.plot && this.body.offsetWidth > 0) this.plot.setSize({ width: this.body.offsetWidth, height: this.height });
  }

  setLog(name, isLog) {
    this.log[name] = isLog;
    this.setFactor();
    if (this.plot) this.redraw();
  }

  select(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    const ends = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.setZoom(ends);
  }

  setZoom(ends) {
    this.zoom = ends;
    this.reset.hidden = !ends;
    if (this.plot) this.plot.setData(this.plot.data);
    if (this.onZoom) this.onZoom();
  }

  drawLegend() {
    this.legend.replaceChildren(...this.data.lines.map((line) => {
      const count = line.n > 1 ? h("small", {}, `n=${line.n}`) : null;
      return h("button", { type: "button", "aria-pressed": String(!this.hidden.has(line.label)), title: "Click to switch; double click for this one alone",
        onclick: () => this.toggle(line.label), ondblclick: () => this.alone(line.label) }, swatch(line), h("span", {}, line.label), count);
    }));
  }

  toggle(label) {
    if (!this.hidden.delete(label)) this.hidden.add(label);
    this.redraw();
  }

  alone(label) {
    this.hidden = new Set(this.data.lines.map((line) => line.label).filter((other) => other !== label));
    this.redraw();
  }

  redraw() {
    this.drawLegend();
    this.build();
    this.drawNote();
  }

  walk(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.plot) return;
    event.preventDefault();
    const xs = this.plot.data[0];
    const place = Math.min(Math.max((this.plot.cursor.idx ?? (step > 0 ? -1 : xs.length)) + step, 0), xs.length - 1);
    this.plot.setCursor({ left: this.plot.valToPos(xs[place], "x"), top: this.plot.over.offsetHeight / 2 });
  }

  // Lines have points of their own, so at one place most have none: take the nearest that has one.
  nearest(column, place) {
    const values = this.plot.data[column];
    for (let step = 0; step < values.length; step += 1) {
      if (values[place - step] != null) return values[place - step] / this.factor;
      if (values[place + step] != null) return values[place + step] / this.factor;
    }
    return null;
  }

  point(plot) {
    const place = plot.cursor.idx;
    this.tip.hidden = place == null || plot.cursor.left < 0;
    if (this.tip.hidden) return;
    const found = this.data.lines
      .map((line, index) => ({ line, value: this.nearest(this.places[index], place) }))
      .filter(({ line, value }) => value != null && !this.hidden.has(line.label))
      .sort((one, other) => other.value - one.value);
    const x = plot.data[0][place];
    const head = { rounds: `round ${plain(Math.round(x))}`, bytes: bytes(x), seconds: duration(x) }[this.axis];
    const rest = found.length - MOST_IN_TIP;
    const rows = found.slice(0, MOST_IN_TIP).map(({ line, value }) => h("div", {}, swatch(line), h("span", {}, line.label), h("em", {}, figure(this.metric, value))));
    this.tip.replaceChildren(h("b", {}, head), h("div", { class: rows.length > 16 ? "two" : "one" }, ...rows), rest > 0 ? h("p", { class: "quiet" }, `and ${rest} more lines with lower values`) : "");
    const box = plot.over.getBoundingClientRect();
    const [x0, y0] = [box.left + plot.cursor.left, box.top + 8];
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    const isRight = x0 + 16 + width > document.documentElement.clientWidth - 8;
    this.tip.style.left = `${Math.max(8, isRight ? x0 - 16 - width : x0 + 16)}px`;
    this.tip.style.top = `${Math.max(8, Math.min(y0, innerHeight - height - 8))}px`;
  }
}
