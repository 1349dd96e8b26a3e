// Which columns the run table has: chosen from every key and figure, and kept in this browser as named sets.
import { button, choice, h, menu, stored } from "./dom.js";
import { COLUMNS } from "./table.js";

const USUAL = COLUMNS.map((column) => column.key);

export class ColumnChooser {
  // onChange(names) is called with the columns to show.
  constructor(onChange) {
    this.onChange = onChange;
    this.names = stored.read("columns", USUAL).filter((name) => typeof name === "string");
    this.sets = stored.read("columnSets", {});
    this.menu = menu("Columns");
    this.menu.element.classList.add("columns");
    this.menu.element.addEventListener("toggle", () => { if (this.menu.element.open) this.draw(); });
    this.element = this.menu.element;
  }

  offer(selection) {
    this.offered = [...new Set([...USUAL, ...this.names, ...selection.differing, ...selection.figures, ...selection.keys])];
    this.differing = new Set(selection.differing);
  }

  set(names) {
    this.names = names;
    stored.write("columns", names);
    this.onChange(names);
    this.draw();
  }

  toggle(name, isOn) {
    this.set(isOn ? [...this.names, name] : this.names.filter((other) => other !== name));
  }

  move(name, step) {
    const names = [...this.names];
    const place = names.indexOf(name);
    const other = place + step;
    if (other < 0 || other >= names.length) return;
    [names[place], names[other]] = [names[other], names[place]];
    this.set(names);
  }

  saveSet(name) {
    if (!name) return;
    this.sets[name] = this.names;
    stored.write("columnSets", this.sets);
    this.draw();
  }

  draw() {
    const label = (name) => COLUMNS.find((column) => column.key === name)?.label || name;
    const item = (name) => {
      const isOn = this.names.includes(name);
      return h("div", { class: "item", "data-name": name.toLowerCase() },
        h("label", {}, h("input", { type: "checkbox", checked: isOn, onchange: (event) => this.toggle(name, event.target.checked) }), h("span", {}, label(name)), this.differing.has(name) ? h("small", {}, "differs") : null),
        isOn ? h("span", {}, button("↑", () => this.move(name, -1), { "aria-label": `Move ${name} to the left` }), button("↓", () => this.move(name, 1), { "aria-label": `Move ${name} to the right` })) : null);
    };
    const items = [...this.names, ...this.offered.filter((name) => !this.names.includes(name))].map(item);
    const hide = () => { for (const one of items) one.hidden = !one.dataset.name.includes(this.search.value.toLowerCase()); };
    const before = this.search?.value || "";
    this.search = h("input", { type: "search", placeholder: "Search keys and figures", "aria-label": "Search columns", value: before, oninput: hide });
    const name = h("input", { placeholder: "Name of this set", "aria-label": "Name of the set of columns", maxlength: 60, onkeydown: (event) => { if (event.key === "Enter") this.saveSet(name.value.trim()); } });
    const known = Object.keys(this.sets);
    const scroll = this.menu.panel.querySelector(".items")?.scrollTop || 0;
    const list = h("div", { class: "items" }, items);
    this.menu.panel.replaceChildren(this.search, list,
      h("div", { class: "row" }, choice([["", "Saved sets"], ["\n", "Usual columns"], ...known.map((one) => [one, one])], "", (value) => { if (value) this.set(value === "\n" ? USUAL : this.sets[value]); }, "Saved sets of columns"),
        known.length ? choice([["", "Forget …"], ...known.map((one) => [one, one])], "", (value) => { delete this.sets[value]; stored.write("columnSets", this.sets); this.draw(); }, "Forget a set of columns") : null),
      h("div", { class: "row" }, name, button("Save", () => this.saveSet(name.value.trim()))));
    hide();
    list.scrollTop = scroll;
  }
}
