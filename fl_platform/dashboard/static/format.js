// How figures, times and names are written.

export const METRIC_NAMES = {
  "test/accuracy": "Test accuracy", "test/top_accuracy": "Top accuracy", "test/final_accuracy": "Last accuracy", "test/loss": "Test loss",
  "test/forgetting": "Forgetting", "train/loss": "Training loss", "update/norm": "Norm of the server's update", "cohort/size": "Workers that reported",
  "communication/total_bytes": "Bytes communicated", "time/total_seconds": "Seconds", "time/round_seconds": "Seconds per round",
  "qp/server_active_anchors": "Server QP: active anchors", "qp/server_norm_ratio": "Server QP: kept share of the norm",
  "qp/server_kkt_residual": "Server QP: KKT residual", "qp/worker_active_anchors": "Worker QP: active anchors",
  "qp/worker_norm_ratio": "Worker QP: kept share of the norm", "qp/worker_kkt_residual": "Worker QP: KKT residual",
  "qp/frozen_tensors": "QP: frozen tensors", "qp/fallbacks": "QP: fallbacks", "memory/slots_used": "Memory: slots used",
  "system/cpu_percent": "Processor (%)", "system/memory_bytes": "Memory", "system/gpu_percent": "GPU (%)", "system/gpu_memory_bytes": "Memory of the GPU",
  "memory/hits": "Memory: hits", "memory/evictions": "Memory: evictions", "memory/mean_age": "Memory: mean age", "memory/max_age": "Memory: greatest age",
};

const FIELD_NAMES = { top: "Top accuracy", accuracy: "Last accuracy", forgetting: "Forgetting", seconds: "Seconds", bytes: "Bytes",
  round: "Round", trial: "Trial", started: "Started", algorithm: "Algorithm", scenario: "Scenario", status: "Status", sweep: "Sweep", end: "How it ended", run: "Single runs" };

export const nameOf = (quantity) => METRIC_NAMES[quantity] || FIELD_NAMES[quantity] || quantity;

export const shortKey = (key) => key.replace(/^algorithm\.(?!name$)/, "");

export const isShare = (metric) => /accuracy|forgetting|^top$/.test(metric) && !metric.endsWith("_round");

export const percent = (value, digits = 2) => (value == null ? "" : `${(100 * value).toFixed(digits)} %`);

export function plain(value) {
  if (value == null) return "";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

export function bytes(count) {
  if (count == null) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (count >= 1000 && place < units.length - 1) {
    count /= 1000;
    place += 1;
  }
  return `${Number(count.toPrecision(3))} ${units[place]}`;
}

export function duration(seconds) {
  if (seconds == null) return "";
  if (seconds < 100) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

export function figure(metric, value) {
  if (value == null) return "";
  if (typeof value !== "number") return String(value);
  if (isShare(metric)) return percent(value);
  if (metric.endsWith("bytes")) return bytes(value);
  if (metric === "started" || metric === "updated") return time(value);
  return plain(value);
}

export function time(seconds) {
  if (!seconds) return "";
  const date = new Date(1000 * seconds);
  const two = (number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

// A label of an axis: few digits, no trailing zeros, exponents only where a number would be long.
export function tick(value, isPercentage = false) {
  if (value == null) return "";
  const number = Number((isPercentage ? 100 * value : value).toPrecision(4));
  const size = Math.abs(number);
  const text = size >= 1e6 || (size > 0 && size < 1e-4) ? number.toExponential().replace("e+", "e") : String(number);
  return isPercentage ? `${text} %` : text;
}

const collator = new Intl.Collator("en", { numeric: true });

export const compareText = (one, other) => collator.compare(String(one), String(other));

export const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

export const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

export function deviation(values) {
  if (values.length < 2) return null;
  const middle = mean(values);
  return Math.sqrt(values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (values.length - 1));
}
