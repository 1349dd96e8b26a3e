// Making elements and asking the server. Text reaches the document only as text nodes: names are data, never markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(3).filter((child) => child != null && child !== false));
  return element;
}

export const h = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

// The answer of one address of the server; an Error carries its one sentence.
export async function ask(name, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value != null && value !== "");
  const address = `/api/${name}?${new URLSearchParams(given)}`;
  let answer = await fetch(address);
  for (let tries = 0; answer.status === 503 && tries < 10; tries++) {
    await new Promise((done) => setTimeout(done, 1000)); // the server makes tables for others
    answer = await fetch(address);
  }
  const values = await answer.json();
  if (!answer.ok) throw new Error(values.error || answer.statusText);
  return values;
}

// A drop-down list; options are [value, text]. A chosen value that is not among them is added.
export function choice(options, chosen, onchange, label) {
  const known = options.some(([value]) => value === chosen) || chosen == null ? options : [...options, [chosen, chosen]];
  const items = known.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  return h("select", { onchange: (event) => onchange(event.target.value), "aria-label": label }, items);
}

export const field = (label, control) => h("label", { class: "field" }, h("span", {}, label), control);

export const button = (text, onclick, attributes = {}) => h("button", { type: "button", onclick, ...attributes }, text);

// Controls that a narrow screen shows on demand: what they control comes first there.
export const folded = (label, content) => h("details", { class: "controls", open: innerWidth > 720 }, h("summary", {}, label), content);

export const empty = (text) => h("p", { class: "empty" }, text);

// A button that opens a panel below it; a click elsewhere or Escape closes it.
export function menu(label, ...content) {
  const summary = h("summary", {}, label);
  const panel = h("div", { class: "panel" }, ...content);
  const element = h("details", { class: "menu", ontoggle: () => {
    panel.classList.toggle("left", element.getBoundingClientRect().left + panel.offsetWidth > document.documentElement.clientWidth - 8);
  } }, summary, panel);
  return { element, summary, panel };
}

document.addEventListener("click", (event) => {
  for (const open of document.querySelectorAll("details.menu[open]")) if (!open.contains(event.target)) open.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const open of document.querySelectorAll("details.menu[open]")) {
    open.open = false;
    open.querySelector("summary").focus();
    event.stopImmediatePropagation();
  }
});

export function download(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name.replace(/[^\w.-]+/g, "_") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Rows of values as CSV (RFC 4180). A leading = + - @ of text would be run as a formula by a spreadsheet.
export function toCsv(rows) {
  const cell = (value) => {
    if (value == null) return "";
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return new Blob([`${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`], { type: "text/csv" });
}

// What this browser keeps between visits; a browser that refuses storage forgets.
export const stored = {
  read(name, fallback) {
    try {
      return JSON.parse(localStorage.getItem(`fl_platform.${name}`)) ?? fallback;
    } catch {
      return fallback;
    }
  },
  write(name, value) {
    try {
      localStorage.setItem(`fl_platform.${name}`, JSON.stringify(value));
    } catch {
      return false;
    }
    return true;
  },
};
