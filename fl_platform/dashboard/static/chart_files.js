// A chart as a file: CSV of its points, SVG drawn from them, and PNG made of that SVG. Always dark on white, for documents.
import { download, svg, toCsv } from "./dom.js";

const INK = "#1d2433";

const nameOfFile = (chart, end) => `${chart.title.textContent || "chart"}-${chart.metric}.${end}`;

export function csvOf(chart) {
  const rows = [["line", "runs", chart.axis, chart.metric, "low", "high", "unsmoothed"]];
  for (const line of chart.data.lines) {
    const raw = line.raw && new Map(line.raw.x.map((x, place) => [x, line.raw.mean[place]]));
    line.x.forEach((x, place) => rows.push([line.label, line.n, x, line.mean[place], line.low?.[place], line.high?.[place], raw?.get(x)]));
  }
  return toCsv(rows);
}

export const saveCsv = (chart) => download(nameOfFile(chart, "csv"), csvOf(chart));

export function saveSvg(chart) {
  if (chart.plot) download(nameOfFile(chart, "svg"), new Blob([svgText(chart)], { type: "image/svg+xml" }));
}

export async function savePng(chart, scale = 3) {
  if (!chart.plot) return;
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(chart))}`;
  await picture.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [scale * picture.naturalWidth, scale * picture.naturalHeight];
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.drawImage(picture, 0, 0);
  canvas.toBlob((blob) => download(nameOfFile(chart, "png"), blob), "image/png");
}

const svgText = (chart) => new XMLSerializer().serializeToString(svgOf(chart));

// Stretches of a line between its gaps, as [x, y] pairs in pixels.
function stretches({ plot, factor }, xs, ys) {
  const found = [[]];
  xs.forEach((x, place) => {
    const y = ys[place] == null ? null : factor * ys[place];
    if (y == null || !Number.isFinite(plot.valToPos(y, "y"))) found.push([]);
    else found.at(-1).push([plot.valToPos(x, "x"), plot.valToPos(y, "y")]);
  });
  return found.filter((points) => points.length);
}

const path = (points) => points.map(([x, y], place) => `${place ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");

export function svgOf(chart) {
  const { plot } = chart;
  const ratio = plot.bbox.width / plot.over.offsetWidth;
  const [left, top, width, height] = [plot.bbox.left / ratio, 30 + plot.bbox.top / ratio, plot.over.offsetWidth, plot.over.offsetHeight];
  const shown = chart.data.lines.filter((line) => !chart.hidden.has(line.label));
  const legend = legendRows(shown, left + width);
  const whole = { width: left + width + 16, height: top + height + 50 + 18 * legend.length };
  const picture = svg("svg", { xmlns: "http://www.w3.org/2000/svg", ...whole, viewBox: `0 0 ${whole.width} ${whole.height}`, "font-family": "Helvetica, Arial, sans-serif", "font-size": 12, fill: INK });
  picture.append(svg("rect", { width: whole.width, height: whole.height, fill: "#ffffff" }));
  picture.append(svg("text", { x: left, y: 20, "font-weight": "bold", "font-size": 13 }, chart.title.textContent));
  picture.append(svg("clipPath", { id: "area" }, svg("rect", { width, height })));
  picture.append(axesOf(plot, left, top, width, height));
  const area = svg("g", { transform: `translate(${left} ${top})`, "clip-path": "url(#area)", fill: "none" });
  for (const line of shown) {
    if (!("low" in line)) continue;
    const edges = [line.low, line.high].map((values) => line.x.map((x, place) => [plot.valToPos(x, "x"), plot.valToPos(chart.factor * (values[place] ?? NaN), "y")]).filter(([, y]) => Number.isFinite(y)));
    area.append(svg("path", { d: `${path([...edges[0], ...edges[1].reverse()])}Z`, fill: line.color, "fill-opacity": shown.length > 6 ? 0.06 : 0.15 }));
  }
  for (const line of shown) {
    if (line.raw) for (const points of stretches(chart, line.raw.x, line.raw.mean)) area.append(svg("path", { d: path(points), stroke: line.color, "stroke-opacity": 0.35 }));
    for (const points of stretches(chart, line.x, line.mean)) {
      if (points.length === 1) area.append(svg("circle", { cx: points[0][0], cy: points[0][1], r: 3, fill: line.color }));
      else area.append(svg("path", { d: path(points), stroke: line.color, "stroke-width": line.width, "stroke-dasharray": line.dash.join(" "), "stroke-linejoin": "round" }));
    }
  }
  picture.append(area, ...drawLegend(legend, top + height + 58));
  return picture;
}

function axesOf(plot, left, top, width, height) {
  const group = svg("g", { transform: `translate(${left} ${top})` });
  const [across, up] = plot.axes;
  (across._splits || []).forEach((value, place) => {
    if (value == null || !across._values[place]) return;
    const x = plot.valToPos(value, "x");
    group.append(svg("line", { x1: x, x2: x, y1: 0, y2: height, stroke: "#e4e7ec" }), svg("text", { x, y: height + 16, "text-anchor": "middle" }, across._values[place]));
  });
  (up._splits || []).forEach((value, place) => {
    if (value == null || !up._values[place]) return;
    const y = plot.valToPos(value, "y");
    group.append(svg("line", { x1: 0, x2: width, y1: y, y2: y, stroke: "#e4e7ec" }), svg("text", { x: -6, y: y + 4, "text-anchor": "end" }, up._values[place]));
  });
  group.append(svg("path", { d: `M0 0V${height}H${width}`, stroke: INK, fill: "none" }));
  group.append(svg("text", { x: width / 2, y: height + 34, "text-anchor": "middle" }, across.label));
  group.append(svg("text", { x: -height / 2, y: 12 - left, "text-anchor": "middle", transform: "rotate(-90)" }, up.label));
  return group;
}

function legendRows(lines, width) {
  const rows = [[]];
  let x = 8;
  for (const line of lines) {
    const text = line.n > 1 ? `${line.label} (n=${line.n})` : line.label;
    const wide = 60 + 7 * text.length;
    if (x + wide > width && rows.at(-1).length) {
      rows.push([]);
      x = 8;
    }
    rows.at(-1).push({ line, text, x });
    x += wide;
  }
  return rows;
}

function drawLegend(rows, top) {
  return rows.flatMap((row, place) => row.flatMap(({ line, text, x }) => [
    svg("line", { x1: x, x2: x + 34, y1: top + 18 * place - 4, y2: top + 18 * place - 4, stroke: line.color, "stroke-width": line.width, "stroke-dasharray": line.dash.join(" ") }),
    svg("text", { x: x + 40, y: top + 18 * place }, text),
  ]));
}
