// From values to places between 0 and 1: linear, logarithmic where values span much, or one place per text.
import { compareText, figure, tick, isShare } from "./format.js";

const COUNTED = ["trial", "seed", "started"]; // are read one after the other
const WIDE = 30; // from this ratio of largest to smallest on, an axis is logarithmic

function niceTicks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((lead) => lead * power).find((size) => size >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, place) => Number(((first + place) * step).toPrecision(12)));
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const lead of high / low > 1000 ? [1] : [1, 2, 5]) found.push(Number(`${lead}e${power}`));
  }
  return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
}

// {place(value): 0..1 or null, ticks: [[place, text]], isText, isLog, write(value)}
export function scaleOf(name, values) {
  const known = values.filter((value) => value != null);
  if (!known.length || known.some((value) => typeof value !== "number")) return textScale([...new Set(known.map(String))].sort(compareText));
  let [low, high] = [Infinity, -Infinity];
  for (const value of known) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const write = (value) => (isShare(name) ? tick(value, true) : name.endsWith("bytes") || name === "started" ? figure(name, value) : tick(value));
  if (low === high) [low, high] = low === 0 ? [0, 1] : [Math.min(0, 2 * low), Math.max(0, 2 * low)];
  if (low > 0 && high / low >= WIDE && !COUNTED.includes(name)) {
    const [from, span] = [Math.log(low), Math.log(high / low)];
    return { isLog: true, write, place: (value) => (typeof value === "number" && value > 0 ? (Math.log(value) - from) / span : null), ticks: logTicks(low, high).map((value) => [(Math.log(value) - from) / span, write(value)]) };
  }
  const few = [...new Set(known)].sort((one, other) => one - other);
  const areApart = few.length <= 6 && few.slice(1).every((value, place) => value - few[place] >= 0.08 * (high - low));
  const shown = areApart && !isShare(name) ? few : niceTicks(low, high, 5);
  return { write, place: (value) => (typeof value === "number" ? (value - low) / (high - low) : null), ticks: shown.map((value) => [(value - low) / (high - low), write(value)]) };
}

function textScale(texts) {
  const places = new Map(texts.map((text, place) => [text, (place + 0.5) / texts.length]));
  return { isText: true, write: String, place: (value) => (value == null ? null : places.get(String(value)) ?? null), ticks: texts.map((text) => [places.get(text), text]) };
}
