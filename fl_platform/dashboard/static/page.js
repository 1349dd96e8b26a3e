"use strict";
// The page of a report: everything it shows is in the data it carries.
FL.page = (data, place) => {
  const section = (title, ...content) => FL.h("section", {}, FL.h("h2", {}, title), ...content);
  const byId = new Map(data.runs.map((run) => [run.id, run]));

  const charts = FL.h("div", { class: "grid" });
  const draw = (metric) => {
    const panel = data.panels.find((one) => one.metric === metric);
    const made = panel.charts.filter(([, lines]) => lines.lines.length).map(([title, lines]) => {
      const chart = new FL.Chart({ title, height: 260 });
      return { chart, lines };
    });
    charts.classList.toggle("single", made.length === 1);
    charts.replaceChildren(...made.map(({ chart }) => chart.element));
    for (const { chart, lines } of made) chart.show(lines, metric);
  };

  const config = FL.h("div", { class: "card figure", id: "config", hidden: true });
  const open = ({ id }) => {
    const run = byId.get(id);
    const values = { ...data.common, ...data.configs[id] };
    const lines = Object.keys(values).sort().map((key) => FL.h("tr", {}, FL.h("th", { scope: "row" }, key), FL.h("td", {}, values[key])));
    config.replaceChildren(FL.h("h3", {}, `${run.algorithm}, ${run.scenario}, seed ${run.seed ?? "?"} (${id})`),
      FL.h("table", { class: "pairs" }, FL.h("tbody", {}, lines)));
    config.hidden = false;
    config.scrollIntoView({ block: "start" });
  };
  const table = new FL.RunTable({ onOpen: open, sort: ["algorithm", 1] });
  const filter = (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    table.show(data.runs.filter((run) => words.every((word) => JSON.stringify(run).toLowerCase().includes(word))));
  };

  const parts = [FL.h("h1", {}, data.title)];
  parts.push(...data.tables.map((one) => FL.h("div", { class: "card figure" }, FL.reportTable(one))));
  if (data.panels.length) {
    const choice = FL.select(data.panels.map((panel) => [panel.metric, panel.label]), data.panels[0].metric, draw, "Metric");
    parts.push(section("Curves", FL.h("div", { class: "bar" }, FL.field("Metric", choice)), charts,
      FL.h("p", { class: "quiet small" }, "Lines are means over finished runs, bands one standard deviation (ddof=1). Drag to zoom, double click to reset; click a legend entry to hide it.")));
  }
  if (data.pictures.length) {
    parts.push(section("Figures", ...data.pictures.map(([name, source]) =>
      FL.h("figure", { class: "card figure" }, FL.h("img", { src: source, alt: name }), FL.h("figcaption", { class: "quiet" }, name)))));
  }
  parts.push(section(`Runs (${data.runs.length})`, FL.h("div", { class: "bar" },
    FL.h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter runs", oninput: filter })), table.element,
    FL.h("p", { class: "quiet small" }, "Click a run for its configuration.")), config);
  place.replaceChildren(...parts);
  table.show(data.runs);
  if (data.panels.length) draw(data.panels[0].metric);
};

FL.page(JSON.parse(document.getElementById("data").textContent), document.getElementById("page"));
