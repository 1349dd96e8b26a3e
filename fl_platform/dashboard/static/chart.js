"use strict";
// One chart: lines with bands, a legend that switches lines, figures at the cursor, zoom by dragging.
FL.Chart = class {
  // onZoom(from, to) may fetch finer data; without it the chart zooms into what it has.
  constructor({ title = "", height = 300, onZoom = null } = {}) {
    this.onZoom = onZoom;
    this.height = height;
    this.zoom = null;
    this.hidden = new Set();
    this.plot = null;
    this.body = FL.h("div", { class: "plot" });
    this.legend = FL.h("div", { class: "legend" });
    this.note = FL.h("p", { class: "quiet small" });
    this.reset = FL.h("button", { type: "button", class: "reset", hidden: true, onclick: () => this.setZoom(null) }, "Reset zoom");
    this.title = FL.h("span", {}, title);
    this.element = FL.h("figure", { class: "card chart" }, FL.h("figcaption", {}, this.title, this.reset), this.body, this.legend, this.note);
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.body);
  }

  // data: {lines, left_out}; metric and axis say how figures are written.
  show(data, metric, axis = "rounds") {
    this.data = data;
    this.metric = metric;
    this.axis = axis;
    const hidden = data.left_out ? `${data.left_out} more lines are not drawn: filter, or group by fewer keys.` : "";
    const mixed = [...new Set(data.lines.flatMap((line) => line.averages))];
    this.note.textContent = [hidden, mixed.length ? `Lines average over ${mixed.join(", ")}.` : ""].join(" ").trim();
    const shape = JSON.stringify([metric, axis, data.lines.map((line) => [line.label, line.color, line.dash, "low" in line])]);
    this.drawLegend();
    if (!data.lines.length) {
      this.destroyPlot();
      this.body.replaceChildren(FL.h("p", { class: "empty" }, `No run has ${metric} yet.`));
    } else if (shape === this.shape && this.plot) {
      this.plot.setData(this.columns());
    } else {
      this.build();
    }
    this.shape = data.lines.length ? shape : null;
  }

  columns() {
    const tables = this.data.lines.map((line) => ("low" in line ? [line.x, line.mean, line.low, line.high] : [line.x, line.mean]));
    return tables.length === 1 ? tables[0] : uPlot.join(tables);
  }

  build() {
    this.destroyPlot();
    const series = [{}];
    const bands = [];
    this.places = [];
    const faint = this.data.lines.length - this.hidden.size > 6 ? "0f" : "26"; // many bands would hide the lines
    for (const line of this.data.lines) {
      const shows = !this.hidden.has(line.label);
      this.places.push(series.length);
      series.push({ label: line.label, stroke: line.color, width: line.width, dash: line.dash, show: shows, points: { show: line.x.length === 1 } });
      if ("low" in line) {
        const edge = { stroke: "transparent", width: 0, points: { show: false }, show: shows };
        series.push({ ...edge }, { ...edge });
        bands.push({ series: [series.length - 1, series.length - 2], fill: `${line.color}${faint}` });
      }
    }
    const write = (value) => (value == null ? "" : FL.isShare(this.metric) ? `${Number((100 * value).toPrecision(4))} %` : FL.figure(this.metric, value));
    const along = { rounds: FL.plain, bytes: FL.bytes, seconds: FL.duration }[this.axis];
    const look = { stroke: "#667085", font: "12px system-ui, sans-serif", grid: { stroke: "#eef0f3", width: 1 }, ticks: { show: false } };
    const options = {
      width: Math.max(this.body.offsetWidth, 100),
      height: this.height,
      legend: { show: false },
      scales: { x: { time: false, range: (plot, low, high) => this.zoom || (low === high ? [low - 1, high + 1] : [low, high]) } },
      axes: [
        { ...look, values: (plot, values) => values.map((value) => along(value)), size: 32, incrs: this.axis === "rounds" ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] : undefined },
        { ...look, values: (plot, values) => values.map(write), size: 64 },
      ],
      series,
      bands,
      cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false }, bind: { dblclick: () => () => this.setZoom(null) } },
      hooks: { setSelect: [(plot) => this.select(plot)], setCursor: [(plot) => this.point(plot)] },
    };
    this.tip = FL.h("div", { class: "tip", hidden: true });
    this.body.replaceChildren();
    this.plot = new uPlot(options, this.columns(), this.body);
    this.plot.over.append(this.tip);
    this.plot.over.addEventListener("mouseleave", () => { this.tip.hidden = true; });
  }

  destroyPlot() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
  }

  destroy() {
    this.watcher.disconnect();
    this.destroyPlot();
  }

  resize() {
    if (this.plot && this.body.offsetWidth > 0) this.plot.setSize({ width: this.body.offsetWidth, height: this.height });
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
      const swatch = FL.h("i", {});
      swatch.style.borderTopColor = line.color;
      swatch.style.borderTopStyle = line.dash.length ? "dashed" : "solid";
      const count = line.n > 1 ? FL.h("small", {}, `n=${line.n}`) : null;
      const off = this.hidden.has(line.label);
      return FL.h("button", { type: "button", "aria-pressed": String(!off), title: "Click to switch; double click for this one alone",
        onclick: () => this.toggle(line.label), ondblclick: () => this.alone(line.label) }, swatch, line.label, count);
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
  }

  // Lines have points of their own, so at one place most have none: take the nearest that has one.
  nearest(column, place) {
    const values = this.plot.data[column];
    for (let step = 0; step < values.length; step += 1) {
      if (values[place - step] != null) return values[place - step];
      if (values[place + step] != null) return values[place + step];
    }
    return null;
  }

  point(plot) {
    const place = plot.cursor.idx;
    this.tip.hidden = place == null || plot.cursor.left < 0;
    if (this.tip.hidden) return;
    const shown = this.data.lines
      .map((line, index) => ({ line, value: this.nearest(this.places[index], place) }))
      .filter(({ line, value }) => value != null && !this.hidden.has(line.label))
      .sort((one, other) => other.value - one.value)
      .slice(0, 12);
    const x = plot.data[0][place];
    const head = { rounds: `round ${FL.plain(Math.round(x))}`, bytes: FL.bytes(x), seconds: FL.duration(x) }[this.axis];
    this.tip.replaceChildren(FL.h("b", {}, head), ...shown.map(({ line, value }) => {
      const dot = FL.h("i", {});
      dot.style.backgroundColor = line.color;
      return FL.h("div", {}, dot, FL.h("span", {}, line.label), FL.h("em", {}, FL.figure(this.metric, value)));
    }));
    const right = plot.cursor.left > plot.over.offsetWidth / 2;
    this.tip.style.left = right ? "" : `${plot.cursor.left + 16}px`;
    this.tip.style.right = right ? `${plot.over.offsetWidth - plot.cursor.left + 16}px` : "";
    this.tip.style.top = "8px";
  }
};
