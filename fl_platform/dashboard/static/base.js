"use strict";
// What every part of the page uses. Text reaches the document only as text nodes: names are data, never markup.
const FL = {};

FL.h = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
};

FL.get = async (name, words = {}) => {
  const given = Object.entries(words).filter(([, value]) => value != null && value !== "");
  const answer = await fetch(`/api/${name}?${new URLSearchParams(given)}`);
  const values = await answer.json();
  if (!answer.ok) throw new Error(values.error || answer.statusText);
  return values;
};

FL.isShare = (metric) => /accuracy|forgetting/.test(metric) && !metric.endsWith("_round");

FL.percent = (value, digits = 2) => (value == null ? "" : `${(100 * value).toFixed(digits)} %`);

FL.plain = (value) => {
  if (value == null) return "";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
};

FL.figure = (metric, value) => {
  if (FL.isShare(metric)) return FL.percent(value);
  if (metric.endsWith("bytes")) return FL.bytes(value);
  return FL.plain(value);
};

FL.duration = (seconds) => {
  if (seconds == null) return "";
  if (seconds < 100) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
};

FL.bytes = (count) => {
  if (count == null) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (count >= 1000 && place < units.length - 1) {
    count /= 1000;
    place += 1;
  }
  return `${Number(count.toPrecision(3))} ${units[place]}`;
};

FL.time = (seconds) => {
  if (!seconds) return "";
  const date = new Date(1000 * seconds);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}`;
};

FL.select = (options, chosen, onchange, label) => {
  const items = options.map(([value, text]) => FL.h("option", { value, selected: value === chosen }, text));
  return FL.h("select", { onchange: (event) => onchange(event.target.value), "aria-label": label }, items);
};

FL.field = (label, control) => FL.h("label", { class: "field" }, FL.h("span", {}, label), control);

FL.status = (status) => FL.h("span", { class: "status", "data-status": status }, status);

FL.settings = (settings) =>
  Object.entries(settings).map(([key, value]) => `${key.replace(/^algorithm\./, "")}=${value}`).join("  ");

// A table as the reports lay it out: header rows with spans, blocks of rows set apart, the best in bold.
FL.reportTable = (table) => {
  if (table.error) return FL.h("p", { class: "empty" }, table.error);
  const head = table.header.map((line, place) =>
    FL.h("tr", {}, place === 0 ? FL.h("th", { rowspan: table.header.length }, table.corner) : null,
      line.map(([text, span]) => FL.h("th", { colspan: span, scope: "col" }, text))));
  const blocks = table.blocks.map((block) =>
    FL.h("tbody", {}, block.map(([label, cells]) =>
      FL.h("tr", {}, FL.h("th", { scope: "row" }, label), cells.map(([text, bold]) =>
        FL.h("td", { class: text === "missing" ? "quiet" : null }, bold ? FL.h("b", {}, text) : text))))));
  return FL.h("figure", { class: "report" }, FL.h("figcaption", {}, table.title),
    FL.h("div", { class: "scroll" }, FL.h("table", { class: "paper" }, FL.h("thead", {}, head), blocks)),
    FL.h("ul", { class: "notes" }, table.notes.map((note) => FL.h("li", {}, note))));
};
