// A table as the reports lay it out: header rows with spans, blocks of rows set apart, the best in bold.
import { empty, h } from "./dom.js";

export function reportTable(table) {
  if (table.error) return empty(table.error);
  const head = table.header.map((line, place) =>
    h("tr", {}, place === 0 ? h("th", { rowspan: table.header.length }, table.corner) : null,
      line.map(([text, span]) => h("th", { colspan: span, scope: "col" }, text))));
  const blocks = table.blocks.map((block) =>
    h("tbody", {}, block.map(([label, cells]) =>
      h("tr", {}, h("th", { scope: "row" }, label), cells.map(([text, bold]) =>
        h("td", { class: text === "missing" ? "quiet" : null }, bold ? h("b", {}, text) : text))))));
  return h("figure", { class: "report" }, h("figcaption", {}, table.title),
    h("div", { class: "scroll" }, h("table", { class: "paper" }, h("thead", {}, head), blocks)),
    h("ul", { class: "notes" }, table.notes.map((note) => h("li", {}, note))));
}
