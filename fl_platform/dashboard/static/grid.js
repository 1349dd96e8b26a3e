// Charts by key: kept while their key stays, so that zoom and hidden lines survive an update.
import { Chart } from "./chart.js";
import { ask, h } from "./dom.js";

export class ChartGrid {
  constructor({ height = 300 } = {}) {
    this.charts = new Map();
    this.height = height;
    this.element = h("div", { class: "grid" });
  }

  // wanted: [{key, title, query}], query being the parameters of one chart.
  show(wanted) {
    const keys = new Set(wanted.map((one) => one.key));
    for (const [key, chart] of this.charts) {
      if (keys.has(key)) continue;
      chart.destroy();
      this.charts.delete(key);
    }
    for (const one of wanted) {
      if (!this.charts.has(one.key)) {
        const chart = new Chart({ title: one.title, height: this.height, onZoom: () => this.fill(chart) });
        this.charts.set(one.key, chart);
      }
      const chart = this.charts.get(one.key);
      chart.query = one.query;
      chart.title.textContent = one.title;
    }
    const elements = wanted.map((one) => this.charts.get(one.key).element);
    const stays = elements.length === this.element.children.length && elements.every((element, place) => element === this.element.children[place]);
    if (!stays) this.element.replaceChildren(...elements);
    return Promise.all(wanted.map((one) => this.fill(this.charts.get(one.key))));
  }

  async fill(chart) {
    const { query, zoom } = chart;
    const window = zoom ? { from: zoom[0], to: zoom[1] } : {};
    const points = Math.max(100, Math.min(1000, chart.body.offsetWidth));
    const data = await ask("lines", { ...query, ...window, points });
    if (chart.query === query && chart.zoom === zoom) chart.show(data, query.metric, query.axis);
  }
}
