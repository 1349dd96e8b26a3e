// One run beside the page.
import { bubbles } from "./bubbles.js";
import { ask, button, empty, h } from "./dom.js";
import { bytes, duration, nameOf, percent } from "./format.js";
import { Chart } from "./chart.js";
import { ChartGrid } from "./grid.js";
import { sizeHistogram } from "./sizes.js";
import { algorithmMark, statusMark } from "./table.js";

export const pairs = (values) => h("table", { class: "pairs" }, h("tbody", {},
  Object.entries(values).map(([key, value]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, String(value))))));

export class Details {
  constructor(element, onClose) {
    Object.assign(this, { element, onClose });
    this.grid = new ChartGrid({ height: 240 });
    this.usage = new Map(); // charts of processor, memory and GPU by metric
    this.fields = { head: h("header"), figures: h("div", { class: "figures" }), log: h("pre", { class: "log", tabindex: 0 }), partition: h("div"), config: h("div"), usage: h("div", { class: "grid" }) };
    const { head, figures, log, partition, config, usage } = this.fields;
    element.replaceChildren(head, figures, this.grid.element, h("h3", {}, "Use of the machine"), usage, h("h3", {}, "Log"), log, h("h3", {}, "Data partition"), partition, h("h3", {}, "Configuration"), config);
  }

  async show(id) {
    const isNew = id !== this.id;
    this.id = id;
    const run = await ask("run", { id });
    if (this.id !== id) return;
    const wasHidden = this.element.hidden;
    this.element.hidden = false;
    const { head, figures, log, partition, config } = this.fields;
    const close = button("×", () => this.onClose(), { "aria-label": "Close" });
    head.replaceChildren(h("div", {}, h("h2", {}, algorithmMark(run), statusMark(run)),
      h("p", { class: "quiet" }, `${run.scenario}, seed ${run.seed ?? "?"} · `, h("span", { class: "mono" }, run.id),
        run.sweep ? ` · sweep ${run.sweep}` : "", run.trial != null ? ` trial ${run.trial}` : "", run.tags.length ? ` · ${run.tags.join(", ")}` : "")), close);
    if (wasHidden) {
      this.before = document.activeElement;
      close.focus();
    }
    const shown = { "Top accuracy": percent(run.top), "Last accuracy": percent(run.accuracy), Forgetting: percent(run.forgetting),
      Round: run.rounds ? `${run.round} / ${run.rounds}` : run.round, Time: duration(run.seconds), Communication: bytes(run.bytes) };
    figures.replaceChildren(...Object.entries(shown).map(([name, text]) => h("div", {}, h("span", {}, name), h("b", {}, String(text) || "–"))));
    const atEnd = log.scrollTop + log.offsetHeight >= log.scrollHeight - 4;
    log.textContent = run.log ?? "This run has no log file: it was not started by a sweep, and printed to its terminal; it left no error either.";
    if (atEnd || isNew) log.scrollTop = log.scrollHeight;
    if (isNew) {
      config.replaceChildren(pairs(run.config), h("h3", {}, "Result"), pairs({ ...run.summary, source: run.source }));
      partition.replaceChildren(button("Show what each worker owns", () => this.deal(id, partition)));
      this.element.scrollTop = 0;
    }
    this.showUsage(id, isNew);
    await this.grid.show(["test/accuracy", "train/loss"].map((metric) =>
      ({ key: `${id} ${metric}`, title: nameOf(metric), query: { metric, by: "run", axis: "rounds", ids: id } })));
  }

  // Charts stay while the run stays, so that a zoom survives an update.
  async showUsage(id, isNew) {
    const { charts } = await ask("resources", { id });
    if (this.id !== id) return;
    if (isNew || !charts.length) {
      for (const chart of this.usage.values()) chart.destroy();
      this.usage.clear();
      this.fields.usage.replaceChildren(...(charts.length ? [] : [empty("No record: the run took less than tracking.resources_every seconds, or has no directory here.")]));
    }
    for (const { metric, title, lines } of charts) {
      if (!this.usage.has(metric)) {
        this.usage.set(metric, new Chart({ title, height: 160 }));
        this.fields.usage.append(this.usage.get(metric).element);
      }
      this.usage.get(metric).show({ lines, left_out: 0 }, metric, "seconds");
    }
  }

  async deal(id, place) {
    place.replaceChildren(h("p", { class: "quiet" }, "Working out the partition …"));
    try {
      const partition = await ask("partition", { id });
      place.replaceChildren(h("div", { class: "scroll" }, bubbles(partition), sizeHistogram(partition)));
    } catch (error) {
      place.replaceChildren(empty(error.message));
    }
  }

  hide() {
    if (!this.id) return;
    this.id = null;
    this.element.hidden = true;
    this.grid.show([]);
    this.before?.focus?.();
  }
}
