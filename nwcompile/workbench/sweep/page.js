// The page of a sweep: a plot of two figures with the front, parallel coordinates, and the point that is picked.
// `data`: columns [{name, label, values, lacks, digits}] (values: null for any number, or the texts an axis has; lacks:
// some points have no number there; digits: those that are known of a time or an energy, else null), objectives, rows, and the id of
// the row that is picked at first, or null.
"use strict";
const data = JSON.parse(document.querySelector("script.data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const DOT = 4.5;
const END = 0.04; // Part of an axis that is left free at its ends.
const FEW = 6; // So many different values of a column are all written on its axis.
const HANDLE = 14; // Pixels on either side of an axis in which a drag selects a range of it.
let picked = data.picked;
const ranges = new Map(); // column index -> [low, high] that rows are kept within, as positions 0..1 on the axis

function element(name, attributes, parent, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function shown(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (!Number.isInteger(value) && Math.abs(value) < 999.5) return String(Number(value.toPrecision(3)));
  return value.toFixed(0).replace(/\B(?=(\d{3})+$)/g, "\u00a0");
}

const figure = (value, { digits }) => shown(digits !== null && typeof value === "number" ? Number(value.toPrecision(digits)) : value);
const cellText = (row, index) => figure(row.cells[index], data.columns[index]);

// Where a column's values lie on an axis from 0 to 1, and what stands beside it; no number stands below all numbers.
function axis(index) {
  const column = data.columns[index];
  if (column.values) {
    const at = new Map(column.values.map((text, i) => [text, (i + 0.5) / column.values.length]));
    return { place: (value) => at.get(shown(value)), ticks: column.values.map((text) => [at.get(text), text]) };
  }
  const numbers = [...new Set(data.rows.map((row) => row.cells[index]).filter((value) => typeof value === "number"))];
  let low = Math.min(...numbers), high = Math.max(...numbers);
  const logarithmic = low > 0 && high / low > 30;
  if (low === high) [low, high] = [low - 1, high + 1];
  const warp = logarithmic ? Math.log : (value) => value;
  const span = warp(high) - warp(low);
  const nothing = column.lacks ? [[END, shown(null)]] : [];
  const lowest = column.lacks ? 4 * END : END;
  const place = (value) => {
    if (value === null && column.lacks) return END;
    return typeof value === "number" ? lowest + ((1 - END - lowest) * (warp(value) - warp(low))) / span : undefined;
  };
  if (numbers.length <= FEW) {
    return { place, ticks: [...nothing, ...numbers.sort((a, b) => a - b).map((value) => [place(value), figure(value, column)])] };
  }
  const values = logarithmic ? [0, 1, 2, 3, 4].map((i) => Number(Math.exp(warp(low) + (span * i) / 4).toPrecision(2))) : roundValues(low, high);
  const ticks = values.filter((value) => value >= low && value <= high).map((value) => [place(value), shown(value)]);
  return { place, ticks: [...nothing, ...ticks] };
}

// Two to six multiples of 1, 2 or 5 times a power of ten.
function roundValues(low, high) {
  const power = 10 ** Math.floor(Math.log10((high - low) / 2));
  const step = power * [5, 2, 1].find((factor) => high - low >= 2 * power * factor);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, k) => Number(((first + k) * step).toPrecision(12)));
}

function isKept(row) {
  for (const [index, [low, high]] of ranges) {
    const at = axis(index).place(row.cells[index]);
    if (at === undefined || at < low || at > high) return false;
  }
  return true;
}

function kind(row) {
  return `${row.front ? "front" : "point"}${row.id === picked ? " picked" : ""}`;
}

function about(row) {
  return [`point ${row.number}`, ...data.columns.map((column, i) => `${column.label}: ${cellText(row, i)}`)].join("\n");
}

function drawPlot() {
  const box = document.getElementById("plot");
  const width = Math.max(box.clientWidth, 260), height = Math.min(440, Math.max(300, width * 0.62));
  const left = 62, right = 14, top = 12, bottom = 44;
  const [xi, yi] = ["x", "y"].map((name) => Number(document.getElementById(name).value));
  const [x, y] = [axis(xi), axis(yi)];
  const px = (value) => left + x.place(value) * (width - left - right);
  const py = (value) => height - bottom - y.place(value) * (height - top - bottom);
  const svg = element("svg", { class: "small", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "points, the front in color" });
  for (const [at, text] of x.ticks) {
    const to = left + at * (width - left - right);
    element("line", { x1: to, x2: to, y1: top, y2: height - bottom, class: "grid-line" }, svg);
    element("text", { x: to, y: height - bottom + 16, class: "middle" }, svg, text);
  }
  for (const [at, text] of y.ticks) {
    const to = height - bottom - at * (height - top - bottom);
    element("line", { x1: left, x2: width - right, y1: to, y2: to, class: "grid-line" }, svg);
    element("text", { x: left - 6, y: to + 4, class: "end" }, svg, text);
  }
  element("text", { x: (left + width - right) / 2, y: height - 6, class: "middle name" }, svg, data.columns[xi].label);
  element("text", { x: 14, y: (top + height - bottom) / 2, class: "middle name",
    transform: `rotate(-90 14 ${(top + height - bottom) / 2})` }, svg, data.columns[yi].label);
  const rows = data.rows.filter((row) => x.place(row.cells[xi]) !== undefined && y.place(row.cells[yi]) !== undefined);
  const front = rows.filter((row) => row.front).sort((a, b) => x.place(a.cells[xi]) - x.place(b.cells[xi]));
  if (data.isPlane(xi, yi) && front.length > 1) {
    element("path", { class: "front-line", d: "M" + front.map((row) => `${px(row.cells[xi])},${py(row.cells[yi])}`).join("L") }, svg);
  }
  for (const row of [...rows].sort((a, b) => a.front - b.front || (a.id === picked) - (b.id === picked))) {
    const dot = element("circle", { cx: px(row.cells[xi]), cy: py(row.cells[yi]), r: row.id === picked ? DOT + 2 : DOT,
      class: `${kind(row)}${isKept(row) ? "" : " left-out"}` }, svg);
    element("title", {}, dot, about(row));
    dot.addEventListener("click", () => pick(row.id));
  }
  box.replaceChildren(svg);
}

// Axes side by side where there is room, and below each other where there is not.
function drawLines() {
  const box = document.getElementById("lines");
  const indices = data.columns.map((_, i) => i).filter((i) => data.columns[i].varies);
  const width = Math.max(box.clientWidth, 260), upright = width >= 90 * indices.length;
  const height = upright ? 360 : 64 * indices.length + 10;
  const svg = element("svg", { class: "small", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "a line for each point" });
  const far = (i) => (upright ? 60 + (i * (width - 120)) / Math.max(indices.length - 1, 1) : 34 + 64 * i);
  const along = (at) => (upright ? 330 - at * 276 : 12 + at * (width - 24));
  const spot = (i, at) => (upright ? [far(i), along(at)] : [along(at), far(i)]);
  const axes = indices.map(axis);
  const rows = data.rows.filter((row) => indices.every((index, i) => axes[i].place(row.cells[index]) !== undefined));
  for (const row of [...rows].sort((a, b) => a.front - b.front || (a.id === picked) - (b.id === picked))) {
    const path = indices.map((index, i) => spot(i, axes[i].place(row.cells[index])).join(",")).join("L");
    const line = element("path", { d: "M" + path, class: `${kind(row)}${isKept(row) ? "" : " left-out"}` }, svg);
    element("title", {}, line, about(row));
    line.addEventListener("click", () => pick(row.id));
  }
  indices.forEach((index, i) => {
    const [[x1, y1], [x2, y2]] = [spot(i, 0), spot(i, 1)];
    element("line", { x1, y1, x2, y2, class: "axis" }, svg);
    const ticks = axes[i].ticks.length > 7 ? axes[i].ticks.filter((_, k) => k % Math.ceil(axes[i].ticks.length / 7) === 0) : axes[i].ticks;
    let before = -Infinity;
    ticks.forEach(([at, text], k) => {
      const needs = upright ? 15 : 7 * text.length + 6;
      if (Math.abs(along(at) - before) < needs) return;
      before = along(at);
      const [x, y] = spot(i, at);
      const side = upright ? { x: x + 5, y: y + 4 } : { x, y: y + 16, class: k === 0 ? "" : k === ticks.length - 1 ? "end" : "middle" };
      element("text", { ...side, class: `tick ${side.class || ""}` }, svg, text);
    });
    const name = upright ? { x: i < indices.length - 1 ? far(i) : width, y: 14 + 14 * (i % 3), class: `${i < indices.length - 1 ? "middle" : "end"} name` } : { x: 12, y: far(i) - 9, class: "name" };
    element("text", name, svg, data.columns[index].label);
    selectable(svg, index, upright, far(i), along);
  });
  box.replaceChildren(svg);
}

// A drag along an axis keeps the rows within it; a click on the axis keeps all again.
function selectable(svg, index, upright, far, along) {
  const [a, b] = [Math.min(along(0), along(1)), Math.max(along(0), along(1))];
  const area = (from, to) => (upright ? { x: far - HANDLE, y: from, width: 2 * HANDLE, height: to - from } : { x: from, y: far - HANDLE, width: to - from, height: 2 * HANDLE });
  if (ranges.has(index)) {
    const ends = ranges.get(index).map(along).sort((p, q) => p - q);
    element("rect", { ...area(ends[0], ends[1]), class: "range" }, svg);
  }
  const handle = element("rect", { ...area(a, b), class: "handle" }, svg);
  const at = (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const pixel = upright ? (event.clientY - box.top) * scale : (event.clientX - box.left) * scale;
    return Math.min(1, Math.max(0, (pixel - along(0)) / (along(1) - along(0))));
  };
  handle.addEventListener("pointerdown", (event) => {
    const start = at(event);
    document.addEventListener("pointerup", (last) => {
      const ends = [start, at(last)].sort((p, q) => p - q);
      if (ends[1] - ends[0] < 0.02) ranges.delete(index);
      else ranges.set(index, ends);
      draw();
    }, { once: true });
  });
}

function pick(id) {
  picked = picked === id ? null : id;
  draw();
}

function drawPicked() {
  const box = document.getElementById("picked");
  const row = data.rows.find((one) => one.id === picked);
  const kept = data.rows.filter(isKept).length;
  document.getElementById("kept").textContent = ranges.size ? `${kept} of ${data.rows.length} points are within the ranges.` : "";
  if (!row) {
    box.replaceChildren(Object.assign(document.createElement("p"), { className: "about", textContent: "Click a point or a line to see it here." }));
    return;
  }
  const list = document.createElement("dl");
  const add = (name, value) => {
    list.append(Object.assign(document.createElement("dt"), { textContent: name }), Object.assign(document.createElement("dd"), { textContent: value }));
  };
  add("point", row.number);
  data.columns.forEach((column, i) => add(column.label, cellText(row, i)));
  if (row.error) add("error", row.error);
  const below = document.createElement("p");
  if (row.report) below.append(Object.assign(document.createElement("a"), { href: row.report, textContent: "the report of this point" }));
  else below.textContent = row.error ? "" : data.noReport;
  box.replaceChildren(list, below);
}

function draw() {
  drawPlot();
  drawLines();
  drawPicked();
}

data.isPlane = (xi, yi) => [xi, yi].every((i) => data.objectives.includes(data.columns[i].name)) && data.objectives.length === 2;
for (const name of ["x", "y"]) {
  const select = document.getElementById(name);
  data.columns.forEach((column, i) => select.append(new Option(column.label, i, false, i === data[name])));
  select.addEventListener("change", draw);
}
window.addEventListener("resize", draw);
for (const link of document.querySelectorAll("[data-id]")) {
  link.addEventListener("click", () => pick(link.dataset.id));
}
draw();
