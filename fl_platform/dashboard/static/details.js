"use strict";
// One run beside the page, and two runs side by side.
FL.pairs = (values) => FL.h("table", { class: "pairs" }, FL.h("tbody", {},
  Object.entries(values).map(([key, value]) => FL.h("tr", {}, FL.h("th", { scope: "row" }, key), FL.h("td", {}, String(value))))));

// Bubbles: worker on x, class on y, area for samples.
FL.bubbles = ({ counts, workers }) => {
  const make = (tag, attributes, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const classes = counts[0].length;
  const [step, rise] = [10, Math.max(3, Math.min(14, 420 / classes))];
  const [width, height] = [counts.length * step, classes * rise];
  const largest = Math.max(...counts.flat());
  const picture = make("svg", { viewBox: `-34 -6 ${width + 40} ${height + 34}`, class: "bubbles", role: "img", "aria-label": "Samples by worker and class" });
  counts.forEach((row, worker) => row.forEach((count, label) => {
    if (!count) return;
    const radius = Math.max(0.8, 1.4 * step * Math.sqrt(count / largest) / 2);
    picture.append(make("circle", { cx: (worker + 0.5) * step, cy: height - (label + 0.5) * rise, r: radius },
      make("title", {}, `worker ${worker}, class ${label}: ${count} samples`)));
  }));
  picture.append(make("line", { x1: 0, y1: height, x2: width, y2: height }), make("line", { x1: 0, y1: 0, x2: 0, y2: height }));
  picture.append(make("text", { x: width / 2, y: height + 24, "text-anchor": "middle" }, workers > counts.length ? `worker (the first ${counts.length} of ${workers})` : "worker"));
  picture.append(make("text", { x: -height / 2, y: -18, "text-anchor": "middle", transform: "rotate(-90)" }, "class"));
  return picture;
};

FL.Details = class {
  constructor(element, onClose) {
    this.element = element;
    this.onClose = onClose;
    this.grid = new FL.ChartGrid();
    this.fields = { head: FL.h("header"), figures: FL.h("div", { class: "figures" }), log: FL.h("pre", { class: "log" }),
      partition: FL.h("div"), config: FL.h("div") };
    const { head, figures, log, partition, config } = this.fields;
    element.replaceChildren(head, figures, this.grid.element, FL.h("h3", {}, "Log"), log, FL.h("h3", {}, "Data partition"), partition, FL.h("h3", {}, "Configuration"), config);
  }

  async show(id) {
    const isNew = id !== this.id;
    this.id = id;
    const run = await FL.get("run", { id });
    if (this.id !== id) return;
    this.element.hidden = false;
    const { head, figures, log, partition, config } = this.fields;
    const close = FL.h("button", { type: "button", "aria-label": "Close", onclick: () => this.close() }, "×");
    head.replaceChildren(FL.h("div", {}, FL.h("h2", {}, FL.algorithm(run), FL.status(run.status)),
      FL.h("p", { class: "quiet" }, `${run.scenario}, seed ${run.seed ?? "?"} · `, FL.h("span", { class: "mono" }, run.id),
        run.sweep ? ` · sweep ${run.sweep}` : "", run.trial != null ? ` trial ${run.trial}` : "", run.tags.length ? ` · ${run.tags.join(", ")}` : "")), close);
    const shown = { "Top accuracy": FL.percent(run.top), "Last accuracy": FL.percent(run.accuracy), Forgetting: FL.percent(run.forgetting),
      Round: run.rounds ? `${run.round} / ${run.rounds}` : run.round, Time: FL.duration(run.seconds), Communication: FL.bytes(run.bytes) };
    figures.replaceChildren(...Object.entries(shown).map(([name, text]) => FL.h("div", {}, FL.h("span", {}, name), FL.h("b", {}, String(text) || "–"))));
    const atEnd = log.scrollTop + log.offsetHeight >= log.scrollHeight - 4;
    log.textContent = run.log ?? "This run has no log file: it was not started by a sweep, and printed to its terminal.";
    if (atEnd || isNew) log.scrollTop = log.scrollHeight;
    if (isNew) {
      config.replaceChildren(FL.pairs(run.config), FL.h("h3", {}, "Result"), FL.pairs({ ...run.summary, source: run.source }));
      const ask = FL.h("button", { type: "button", onclick: () => this.deal(id, partition) }, "Show what each worker owns");
      partition.replaceChildren(ask);
      this.element.scrollTop = 0;
    }
    await this.grid.show(["test/accuracy", "train/loss"].map((metric) =>
      ({ key: `${id} ${metric}`, title: FL.METRIC_NAMES[metric], words: { metric, by: "run", axis: "rounds", ids: id } })));
  }

  async deal(id, place) {
    place.replaceChildren(FL.h("p", { class: "quiet" }, "Dealing the data …"));
    try {
      place.replaceChildren(FL.bubbles(await FL.get("partition", { id })));
    } catch (error) {
      place.replaceChildren(FL.h("p", { class: "empty" }, error.message));
    }
  }

  close() {
    this.id = null;
    this.element.hidden = true;
    this.grid.show([]);
    this.onClose();
  }
};

FL.CompareView = class {
  constructor(app) {
    this.app = app;
    this.grid = new FL.ChartGrid();
    this.controls = FL.h("div", { class: "bar" });
    this.body = FL.h("div", { class: "tables" });
    this.element = FL.h("div", {}, this.controls, this.grid.element, this.body);
  }

  drawControls() {
    const options = this.app.chosen().map((run) => [run.id, `${run.algorithm}, ${run.scenario}, seed ${run.seed ?? "?"} (${run.id})`]);
    for (const id of this.app.pair) if (!options.some(([value]) => value === id)) options.unshift([id, id]);
    const text = JSON.stringify([options, this.app.pair]);
    if (text === this.drawn) return;
    this.drawn = text;
    options.sort(([, one], [, other]) => one.localeCompare(other));
    this.controls.replaceChildren(...["First", "Second"].map((label, place) =>
      FL.field(label, FL.select([["", "choose a run"], ...options], this.app.pair[place] || "", (value) => this.app.setPair(place, value), label))));
  }

  async update() {
    this.drawControls();
    const pair = this.app.pair.filter(Boolean);
    if (pair.length < 2 || pair[0] === pair[1]) {
      this.body.replaceChildren(FL.h("p", { class: "empty" }, "Choose two runs here, or tick two in the table of runs."));
      this.grid.show([]);
      return;
    }
    const ids = pair.join(",");
    const [one, other] = await Promise.all(pair.map((id) => FL.get("run", { id })));
    const metrics = ["test/accuracy", "test/loss", "test/forgetting", "train/loss"];
    const charts = this.grid.show(metrics.map((metric) =>
      ({ key: metric, title: FL.METRIC_NAMES[metric], words: { metric, by: "run", axis: "rounds", ids } })));
    this.body.replaceChildren(this.differences(one, other), this.figures(one, other));
    await charts;
  }

  head(one, other, ...more) {
    return FL.h("thead", {}, FL.h("tr", {}, ["", one.id, other.id, ...more].map((text) => FL.h("th", { scope: "col" }, text))));
  }

  differences(one, other) {
    const names = [...new Set([...Object.keys(one.config), ...Object.keys(other.config)])];
    const lines = names.filter((name) => one.config[name] !== other.config[name]).map((name) =>
      FL.h("tr", {}, FL.h("th", { scope: "row" }, name), FL.h("td", {}, one.config[name] ?? "–"), FL.h("td", {}, other.config[name] ?? "–")));
    const body = lines.length ? FL.h("div", { class: "scroll" }, FL.h("table", { class: "pairs" }, this.head(one, other), FL.h("tbody", {}, lines)))
      : FL.h("p", { class: "empty" }, "No difference.");
    return FL.h("div", { class: "card" }, FL.h("h3", {}, "Configuration: what differs"), body);
  }

  figures(one, other) {
    const names = [...new Set([...Object.keys(one.latest), ...Object.keys(other.latest)])].sort();
    const lines = names.map((name) => {
      const [a, b] = [one.latest[name], other.latest[name]];
      const gap = a != null && b != null ? FL.figure(name, b - a) : "";
      return FL.h("tr", {}, FL.h("th", { scope: "row" }, name), [FL.figure(name, a), FL.figure(name, b), gap].map((text) => FL.h("td", { class: "number" }, text)));
    });
    return FL.h("div", { class: "card" }, FL.h("h3", {}, "Newest figures"),
      FL.h("div", { class: "scroll" }, FL.h("table", { class: "pairs" }, this.head(one, other, "second − first"), FL.h("tbody", {}, lines))));
  }
};
