// Dots on two axes, drawn on a canvas so that ten thousand are no trouble; the nearest to the pointer says what it is.
import { h } from "./dom.js";
import { scaleOf } from "./scales.js";
import { styleColor } from "./theme.js";

export class Dots {
  constructor({ title, height = 300, onOpen = () => {} }) {
    Object.assign(this, { height, onOpen });
    this.canvas = h("canvas", { role: "img", "aria-label": title, onmousemove: (event) => this.point(event), onmouseleave: () => { this.tip.hidden = true; }, onclick: () => { if (this.near) this.onOpen(this.near.id); } });
    this.tip = h("div", { class: "tip", hidden: true });
    this.note = h("p", { class: "quiet small" });
    this.title = h("span", {}, title);
    this.box = h("div", { class: "plot" }, this.canvas, this.tip);
    this.controls = h("div", { class: "row" });
    this.element = h("figure", { class: "card chart" }, h("figcaption", {}, this.title), this.controls, this.box, this.note);
    new ResizeObserver(() => this.draw()).observe(this.box);
    document.addEventListener("themechange", () => this.draw());
  }

  // dots: [{id, x, y, color, isCross, text: [lines]}]; path, if given: [[x, y]] of a staircase.
  show({ dots, xName, yName, xLabel, yLabel, path = [] }) {
    Object.assign(this, { dots, xLabel, yLabel, path });
    this.scales = { x: scaleOf(xName, dots.map((dot) => dot.x)), y: scaleOf(yName, dots.map((dot) => dot.y)) };
    this.draw();
  }

  position(x, y) {
    const places = [this.scales.x.place(x), this.scales.y.place(y)];
    if (places.some((place) => place == null)) return null;
    const { left, top, width, height } = this.area;
    return [left + this.inside(places[0], width), top + this.inside(1 - places[1], height)];
  }

  // Dots at the ends of an axis are drawn whole.
  inside(share, size) {
    return 8 + share * (size - 16);
  }

  draw() {
    const whole = this.box.offsetWidth;
    if (!this.dots || !whole) return;
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: whole * ratio, height: this.height * ratio });
    this.canvas.style.width = `${whole}px`;
    this.canvas.style.height = `${this.height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "12px system-ui, sans-serif";
    const wide = Math.min(140, Math.max(...this.scales.y.ticks.map(([, text]) => context.measureText(text).width), 10));
    this.area = { left: wide + 34, top: 12, width: whole - wide - 54, height: this.height - 62 };
    this.drawAxes(context);
    this.drawPath(context);
    this.placed = this.dots.map((dot) => ({ dot, at: this.position(dot.x, dot.y) })).filter(({ at }) => at);
    context.globalAlpha = this.placed.length > 1000 ? 0.4 : 0.85;
    for (const { dot, at: [x, y] } of this.placed) {
      context.fillStyle = context.strokeStyle = dot.color;
      context.beginPath();
      if (dot.isCross) {
        context.lineWidth = 1.8;
        context.moveTo(x - 4, y - 4);
        context.lineTo(x + 4, y + 4);
        context.moveTo(x + 4, y - 4);
        context.lineTo(x - 4, y + 4);
        context.stroke();
      } else {
        context.arc(x, y, 4, 0, 2 * Math.PI);
        context.fill();
      }
    }
    context.globalAlpha = 1;
  }

  drawAxes(context) {
    const { left, top, width, height } = this.area;
    context.fillStyle = styleColor("--quiet");
    context.strokeStyle = styleColor("--grid");
    context.lineWidth = 1;
    context.textAlign = "center";
    let end = -Infinity;
    for (const [place, text] of this.scales.x.ticks) {
      const x = left + this.inside(place, width);
      context.strokeRect(x, top, 0, height);
      const half = context.measureText(text).width / 2;
      if (x - half < end + 8) continue;
      context.fillText(text, x, top + height + 18);
      end = x + half;
    }
    context.fillText(this.xLabel + (this.scales.x.isLog ? " (logarithmic)" : ""), left + width / 2, top + height + 40);
    context.textAlign = "right";
    const every = Math.ceil((16 * this.scales.y.ticks.length) / height);
    this.scales.y.ticks.forEach(([place, text], index) => {
      const y = top + this.inside(1 - place, height);
      context.strokeRect(left, y, width, 0);
      if (index % every === 0) context.fillText(text.length > 20 ? `${text.slice(0, 19)}…` : text, left - 8, y + 4);
    });
    context.save();
    context.translate(13, top + height / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(this.yLabel + (this.scales.y.isLog ? " (logarithmic)" : ""), 0, 0);
    context.restore();
  }

  drawPath(context) {
    const points = this.path.map(([x, y]) => this.position(x, y)).filter(Boolean);
    context.strokeStyle = styleColor("--accent");
    context.lineWidth = 2;
    context.beginPath();
    points.forEach(([x, y], place) => {
      if (place) context.lineTo(x, points[place - 1][1]);
      context.lineTo(x, y);
    });
    context.stroke();
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let least = 20 ** 2;
    this.near = null;
    for (const { dot, at } of this.placed || []) {
      const distance = (at[0] - x) ** 2 + (at[1] - y) ** 2;
      if (distance < least) [least, this.near] = [distance, dot];
    }
    this.canvas.style.cursor = this.near ? "pointer" : "default";
    this.tip.hidden = !this.near;
    if (!this.near) return;
    this.tip.replaceChildren(...this.near.text.map((line, place) => h(place ? "div" : "b", {}, line)));
    const isRight = event.clientX + this.tip.offsetWidth + 24 > document.documentElement.clientWidth;
    this.tip.style.left = `${event.clientX + (isRight ? -16 - this.tip.offsetWidth : 16)}px`;
    this.tip.style.top = `${event.clientY + 12}px`;
  }
}
