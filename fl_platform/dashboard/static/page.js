// The page of a report: everything it shows is in the data it carries.
import { Chart } from "./chart.js";
import { choice, field, h } from "./dom.js";
import { shortKey } from "./format.js";
import { reportTable } from "./report_table.js";
import { RunTable } from "./table.js";

function reportPage(data, place) {
  const section = (title, ...content) => h("section", {}, h("h2", {}, title), ...content);
  const byId = new Map(data.runs.map((run) => [run.id, run]));

  const charts = h("div", { class: "grid" });
  const draw = (metric) => {
    const panel = data.panels.find((one) => one.metric === metric);
    const made = panel.charts.filter(([, lines]) => lines.lines.length).map(([title, lines]) => ({ chart: new Chart({ title, height: 260 }), lines }));
    charts.replaceChildren(...made.map(({ chart }) => chart.element));
    for (const { chart, lines } of made) chart.show(lines, metric);
  };

  const config = h("div", { class: "card figure", id: "config", hidden: true });
  const open = ({ id }) => {
    const run = byId.get(id);
    const values = { ...data.common, ...data.configs[id] };
    const lines = Object.keys(values).sort().map((key) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, values[key])));
    config.replaceChildren(h("h3", {}, `${run.algorithm}, ${run.scenario}, seed ${run.seed ?? "?"} (${id})`), h("table", { class: "pairs" }, h("tbody", {}, lines)));
    config.hidden = false;
    config.scrollIntoView({ block: "start" });
  };
  const settingsOf = (id) => data.settings.filter((key) => key in data.configs[id]).map((key) => `${shortKey(key)}=${data.configs[id][key]}`).join("  ");
  const table = new RunTable({ onOpen: open, sort: ["algorithm", 1], settingsOf });
  const filter = (event) => {
    const wanted = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    table.show(data.runs.filter((run) => wanted.every((word) => `${JSON.stringify(run)} ${settingsOf(run.id)}`.toLowerCase().includes(word))));
  };

  const parts = [h("h1", {}, data.title)];
  parts.push(...data.tables.map((one) => h("div", { class: "card figure" }, reportTable(one))));
  if (data.panels.length) {
    const metric = choice(data.panels.map((panel) => [panel.metric, panel.label]), data.panels[0].metric, draw, "Metric");
    parts.push(section("Curves", h("div", { class: "bar" }, field("Metric", metric)), charts,
      h("p", { class: "quiet small" }, "Lines are means over finished runs, bands one standard deviation (ddof=1). Drag to zoom, double click to reset; click a legend entry to hide it.")));
  }
  if (data.pictures.length) {
    parts.push(section("Figures", ...data.pictures.map(([name, source]) =>
      h("figure", { class: "card figure" }, h("img", { src: source, alt: name }), h("figcaption", { class: "quiet" }, name)))));
  }
  parts.push(section(`Runs (${data.runs.length})`, h("div", { class: "bar" },
    h("input", { type: "search", placeholder: "Filter by words", "aria-label": "Filter runs", oninput: filter })), table.element,
    h("p", { class: "quiet small" }, "Click a run for its configuration.")), config);
  place.replaceChildren(...parts);
  table.show(data.runs);
  if (data.panels.length) draw(data.panels[0].metric);
}

reportPage(JSON.parse(document.getElementById("data").textContent), document.getElementById("page"));
