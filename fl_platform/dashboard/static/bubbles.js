// The data of workers: worker on x, class on y, area for samples.
import { svg } from "./dom.js";

// At most `count` round places up to `end`, beginning at 0.
function places(end, count) {
  const step = [1, 2, 5, 10, 20, 50, 100, 200].find((size) => end / size <= count) || Math.ceil(end / count);
  return Array.from({ length: Math.ceil(end / step) }, (_, place) => place * step);
}

export function bubbles({ counts, workers }) {
  const classes = counts[0].length;
  const [step, rise] = [Math.max(6, Math.min(24, 640 / counts.length)), Math.max(4, Math.min(22, 360 / classes))];
  const [width, height] = [counts.length * step, classes * rise];
  const largest = counts.reduce((most, row) => Math.max(most, ...row), 1);
  const picture = svg("svg", { viewBox: `-52 -10 ${width + 62} ${height + 54}`, class: "bubbles", role: "img", "aria-label": "Samples by worker and class" });
  for (const label of places(classes, Math.max(2, height / 16))) {
    const y = height - (label + 0.5) * rise;
    picture.append(svg("line", { x1: 0, x2: width, y1: y, y2: y, class: "guide" }), svg("text", { x: -8, y: y + 4, "text-anchor": "end" }, String(label)));
  }
  for (const worker of places(counts.length, width / 34)) {
    const x = (worker + 0.5) * step;
    picture.append(svg("line", { x1: x, x2: x, y1: height, y2: height + 4 }), svg("text", { x, y: height + 18, "text-anchor": "middle" }, String(worker)));
  }
  counts.forEach((row, worker) => row.forEach((count, label) => {
    if (!count) return;
    const radius = Math.max(0.8, 0.7 * Math.min(step, 1.6 * rise) * Math.sqrt(count / largest));
    picture.append(svg("circle", { cx: (worker + 0.5) * step, cy: height - (label + 0.5) * rise, r: radius }, svg("title", {}, `worker ${worker}, class ${label}: ${count} samples`)));
  }));
  picture.append(svg("line", { x1: 0, y1: height, x2: width, y2: height }), svg("line", { x1: 0, y1: 0, x2: 0, y2: height }));
  picture.append(svg("text", { x: width / 2, y: height + 38, "text-anchor": "middle" }, workers > counts.length ? `worker (the first ${counts.length} of ${workers})` : "worker"));
  picture.append(svg("text", { x: -height / 2, y: -38, "text-anchor": "middle", transform: "rotate(-90)" }, `class (largest bubble: ${largest} samples)`));
  return picture;
}
