// How many samples workers own: a histogram of at most 20 bars, each of a round number of samples.
import { svg } from "./dom.js";

const [WIDTH, HEIGHT, MOST_BARS] = [640, 150, 20];

// The smallest 1, 2 or 5 times a power of ten with which `span` needs no more than `count` steps.
function roundStep(span, count) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, span / count)));
  return [1, 2, 5, 10].map((size) => size * power).find((step) => span / step <= count);
}

export function bars(sizes) {
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  const width = roundStep(most - least + 1, MOST_BARS);
  const first = Math.floor(least / width) * width;
  const counts = Array.from({ length: Math.floor((most - first) / width) + 1 }, () => 0);
  for (const size of sizes) counts[Math.floor((size - first) / width)] += 1;
  return counts.map((count, place) => ({ from: first + place * width, to: first + (place + 1) * width, count }));
}

export function sizeHistogram({ sizes }) {
  const drawn = bars(sizes);
  const highest = Math.max(...drawn.map((bar) => bar.count));
  const step = WIDTH / drawn.length;
  const picture = svg("svg", { viewBox: `-52 -10 ${WIDTH + 82} ${HEIGHT + 54}`, class: "bubbles", role: "img", "aria-label": "Workers by their number of samples" });
  const rise = roundStep(highest, 4);
  for (let count = 0; count <= highest; count += rise) {
    const y = HEIGHT * (1 - count / highest);
    picture.append(svg("line", { x1: 0, x2: WIDTH, y1: y, y2: y, class: "guide" }), svg("text", { x: -8, y: y + 4, "text-anchor": "end" }, String(count)));
  }
  const every = Math.ceil(drawn.length / 10);
  drawn.forEach(({ from, to, count }, place) => {
    const height = (HEIGHT * count) / highest;
    const range = to - from > 1 ? `${from} to ${to - 1} samples` : `${from} samples`;
    picture.append(svg("rect", { x: place * step + 1, y: HEIGHT - height, width: step - 2, height }, svg("title", {}, `${range}: ${count} workers`)));
    if (place % every === 0) picture.append(svg("text", { x: place * step, y: HEIGHT + 18, "text-anchor": "middle" }, from.toLocaleString("en")));
  });
  picture.append(svg("line", { x1: 0, y1: HEIGHT, x2: WIDTH, y2: HEIGHT }));
  picture.append(svg("text", { x: WIDTH / 2, y: HEIGHT + 38, "text-anchor": "middle" }, "samples of a worker"));
  picture.append(svg("text", { x: -HEIGHT / 2, y: -38, "text-anchor": "middle", transform: "rotate(-90)" }, "workers"));
  return picture;
}
