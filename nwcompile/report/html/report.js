"use strict";

// Makes report.html a page to click through: tables that sort and filter, cores and links that tell what they do, a slider
// over the hardware steps, a floorline that zooms. The page shows its figures without this script, too.
// What comes from outside (names, notes) goes into the page as text, never as markup.

(() => {
  const SVG = document.querySelector("svg").namespaceURI;
  const FIGURES = { busy_cycles: "busy time", synops: "synops", spikes_out: "spikes", messages_in: "messages in" };
  const EVENTS = {
    visit: "neuron visits", update: "neuron updates", spike: "spikes", message_out: "messages out",
    message_in: "messages in", word: "memory words", synop_dense: "synops, dense", synop_sparse: "synops, sparse",
    synop_conv: "synops, convolution",
  };
  const LARGER_UNITS = { us: "ms", ms: "s", nJ: "uJ", uJ: "mJ", mJ: "J" };
  const BETWEEN_ROUTERS = new Set(["E", "W", "N", "S", "segment"]);
  const MOST_ROWS = 100; // More rows at once slow a page down; a button shows the others.
  const MOST_LISTED = 12; // Cores or links at first, as the page is long.
  const FEWEST_TO_FILTER = 13; // Fewer rows are read faster than a word is typed.
  const N_SHADES = 64; // More shades than an eye tells apart.
  const DARK_FROM = 0.77; // As in maps.py: from here on numbers are white.
  const ZOOM = 1.6; // One press of a button.
  const collator = new Intl.Collator("en", { numeric: true });

  // ---- figures as text, as text.py writes them

  const percent = (x) => (x > 0 && x < 0.05 ? "< 0.1" : x >= 99.95 && x < 100 ? "> 99.9" : x.toFixed(1)) + "\u00a0%";
  // As round_figure of shown.py: two digits for an assumed figure, else three.
  const rounded = (x, basis) => (basis === null ? x : Number(x.toPrecision(basis.startsWith("assumed") ? 2 : 3)));

  function grouped(x) {
    const [whole, rest] = (Math.abs(x) >= 999.5 ? x.toFixed(0) : String(Number(x.toPrecision(3)))).split(".");
    return whole.replace(/\B(?=(\d{3})+$)/g, "\u00a0") + (rest === undefined ? "" : `.${rest}`);
  }

  // As format_figure of shown.py: 9809 nJ are 9.81 uJ.
  function withUnit(x, unit, basis) {
    let [value, name] = [rounded(x, basis), unit];
    for (; Math.abs(value) >= 999.5 && name in LARGER_UNITS; name = LARGER_UNITS[name]) value /= 1000;
    return `${grouped(value)}\u00a0${name}`;
  }

  const counted = (n, noun) => `${grouped(n)} ${noun}${n === 1 ? "" : "s"}`;

  // ---- elements

  function make(name, attributes, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  function draw(name, attributes) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  }

  function button(text, act, attributes = {}) {
    const element = make("button", { type: "button", ...attributes }, text);
    element.addEventListener("click", act);
    return element;
  }

  function pairs(rows) {
    return make("dl", {}, ...rows.flatMap(([word, ...said]) => [make("dt", {}, word), make("dd", {}, ...said)]));
  }

  // ---- packed numbers (data.py says how)

  function unpack(text) {
    const bytes = atob(text);
    const numbers = [];
    let value = 0;
    let unit = 1;
    for (let i = 0; i < bytes.length; i++) {
      const byte = bytes.charCodeAt(i);
      value += (byte & 127) * unit;
      unit *= 128;
      if (byte < 128) {
        numbers.push(value);
        value = 0;
        unit = 1;
      }
    }
    return numbers;
  }

  // Rows {source, home, to, amount} of every core or link, -1 for outside, and the sum of the others (-1: not known).
  function unpackTraffic(text) {
    const numbers = unpack(text);
    const items = [];
    let i = 0;
    while (i < numbers.length) {
      const item = { rows: [], others: numbers[i + 1] - 1 };
      const end = i + 2 + 4 * numbers[i];
      for (i += 2; i < end; i += 4) {
        const [source, home, to, amount] = numbers.slice(i, i + 4);
        item.rows.push({ source, home: home - 1, to: to - 1, amount });
      }
      items.push(item);
    }
    return items;
  }

  // Rows [x, y, kind, flits per step, peak, mean of what waits]; the last two are null where they are not known.
  function linksOf(columns) {
    const [x, y, kind, peak] = [columns.x, columns.y, columns.kind, columns.peak].map(unpack);
    return x.map((_, i) => [x[i], y[i], columns.kinds[kind[i]], columns.flits[i], peak[i] > 0 ? peak[i] - 1 : null, columns.mean[i]]);
  }

  // ---- tables

  const PREFIX = { p: 1e-12, n: 1e-9, u: 1e-6, m: 1e-3 };

  // The number at the start of a text; with a unit of time, energy or power in seconds, joules or watts.
  function amountIn(text) {
    const found = /^(?:[<>] )?([-+]?[\d\u00a0 ]*\.?\d+(?:e[-+]?\d+)?)(?:[\u00a0 ]([pnum])[sJW]\b)?/.exec(text.trim());
    return found ? Number(found[1].replace(/[\u00a0 ]/g, "")) * (PREFIX[found[2]] || 1) : NaN;
  }

  // rows: [{texts: () => [...], line: () => tr}]; figures sort largest first, names from a to z, empty cells stay last.
  function enhance(box, rows, mostRows) {
    const table = box.querySelector("table");
    const heads = [...table.tHead.rows[0].cells];
    const sorting = { column: -1, down: false };
    let words = [];
    let limit = mostRows;
    const about = make("span", { class: "count", role: "status" });
    const more = button("Show all", () => { limit = Infinity; show(); });

    function compare(column) {
      if (heads[column].classList.contains("left")) {
        return (a, b) => collator.compare(a.texts()[column], b.texts()[column]);
      }
      return (a, b) => amountIn(a.texts()[column]) - amountIn(b.texts()[column]);
    }

    function sorted(shown) {
      const { column, down } = sorting;
      if (column < 0) return shown;
      const isText = heads[column].classList.contains("left");
      const isKnown = (row) => (isText ? row.texts()[column] !== "" : !Number.isNaN(amountIn(row.texts()[column])));
      const known = shown.filter(isKnown).sort(compare(column));
      return [...(down ? known.reverse() : known), ...shown.filter((row) => !isKnown(row))];
    }

    function show() {
      const has = (row) => { const text = row.texts().join(" ").toLowerCase(); return words.every((w) => text.includes(w)); };
      const shown = sorted(words.length ? rows.filter(has) : rows);
      table.tBodies[0].replaceChildren(...shown.slice(0, limit).map((row) => row.line()));
      const n = Math.min(limit, shown.length);
      about.textContent = n < rows.length ? `${n} of ${rows.length} rows` : "";
      more.hidden = shown.length <= limit;
    }

    heads.forEach((head, column) => {
      const first = !head.classList.contains("left");
      head.replaceChildren(button(head.textContent, () => {
        const again = sorting.column === column;
        if (again && sorting.down !== first) sorting.column = -1;
        else Object.assign(sorting, { column, down: again ? !first : first });
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        if (sorting.column >= 0) head.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
        show();
      }));
    });
    if (rows.length >= FEWEST_TO_FILTER) {
      const input = make("input", { type: "search" });
      input.addEventListener("input", () => { words = input.value.toLowerCase().split(/\s+/).filter(Boolean); show(); });
      box.before(make("div", { class: "controls" }, make("label", {}, "Filter ", input)), make("p", { class: "rows" }, about, more));
    }
    show();
  }

  function enhanceWritten(box) {
    const rows = [...box.querySelectorAll("tbody > tr")].map((line) => {
      const texts = [...line.cells].map((cell) => cell.textContent);
      return { texts: () => texts, line: () => line };
    });
    if (rows.length > 1) enhance(box, rows, MOST_ROWS);
  }

  // columns: [[heading, is it text]]; a cell is text or an element.
  function tableOf(columns, lines) {
    const head = columns.map(([name, isText]) => make("th", { scope: "col", ...(isText ? { class: "left" } : {}) }, name));
    const parts = [make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...lines.map((cells) => lineOf(columns, cells)))];
    return make("div", { class: "table" }, make("table", {}, ...parts));
  }

  function lineOf(columns, cells) {
    return make("tr", {}, ...cells.map((cell, i) => make("td", columns[i][1] ? { class: "left" } : {}, cell)));
  }

  // A table whose lines are made when they are first shown: cells(i) are those of row i.
  function longTable(title, about, columns, n, texts, cells) {
    const box = tableOf(columns, []);
    const card = make("section", { class: "card whole" }, make("h2", {}, title), make("p", { class: "about" }, about), box);
    const rows = Array.from({ length: n }, (_, i) => {
      let written = null;
      let line = null;
      return { texts: () => (written ??= texts(i)), line: () => (line ??= lineOf(columns, cells(i, texts(i)))) };
    });
    if (n) enhance(box, rows, MOST_LISTED);
    return card;
  }

  // ---- axes of plots

  function axisOf(text, isLog) {
    const [low, high, start, end] = text.split(" ").map(Number);
    const part = (v) => (isLog ? Math.log(Math.max(v, low) / low) / Math.log(high / low) : (v - low) / (high - low));
    return {
      start, end, isLog,
      at: (v) => start + (end - start) * Math.min(Math.max(part(v), 0), 1),
      value: (p) => (isLog ? low * (high / low) ** p : low + (high - low) * p),
    };
  }

  function ticks(low, high, isLog) {
    const values = [];
    if (isLog && high / low > 8) {
      const wide = Math.log10(high / low) > 3.2;
      for (let d = Math.floor(Math.log10(low)); d <= Math.ceil(Math.log10(high)); d++) {
        for (const m of wide ? [1] : [1, 2, 5]) values.push(m * 10 ** d);
      }
    } else {
      const power = 10 ** Math.floor(Math.log10((high - low) / 5));
      const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= ((high - low) / 5) * 0.999);
      for (let v = Math.ceil(low / step) * step; v <= high; v += step) values.push(Number(v.toPrecision(12)));
    }
    return values.filter((v) => v >= low * 0.999 && v <= high * 1.001);
  }

  // ---- the floorline, which zooms; a window is a part 0..1 of each axis

  let nClips = 0;

  function zoomable(svg) {
    const x = axisOf(svg.dataset.x, true);
    const y = axisOf(svg.dataset.y, true);
    const marks = svg.querySelector(".marks");
    const axes = svg.querySelector(".axes");
    const written = [...axes.children];
    const line = marks.querySelector(".floorline");
    const places = new Map();
    for (const mark of marks.querySelectorAll("circle, .predicted, .note")) {
      if (mark.tagName === "path") {
        const [left, middle] = mark.getAttribute("d").slice(1).split("h")[0].split(" ").map(Number);
        places.set(mark, [left + 4, middle]);
      } else {
        const [px, py] = mark.tagName === "text" ? ["x", "y"] : ["cx", "cy"];
        places.set(mark, [Number(mark.getAttribute(px)), Number(mark.getAttribute(py))]);
      }
    }
    const id = `plot-${nClips++}`;
    const clip = draw("clipPath", { id });
    clip.append(draw("rect", { x: x.start, y: y.end, width: x.end - x.start, height: y.start - y.end }));
    svg.append(clip);
    let view = [0, 1, 0, 1];

    const isWhole = () => view[1] - view[0] >= 0.999 && view[3] - view[2] >= 0.999;
    const scale = () => [1 / (view[1] - view[0]), 1 / (view[3] - view[2])];

    function put(mark) {
      const [px, py] = places.get(mark);
      const [sx, sy] = scale();
      const cx = x.start + (px - x.start - view[0] * (x.end - x.start)) * sx;
      const cy = y.start + (py - y.start - view[2] * (y.end - y.start)) * sy;
      if (mark.tagName === "circle") {
        mark.setAttribute("cx", cx.toFixed(1));
        mark.setAttribute("cy", cy.toFixed(1));
      } else {
        const dx = mark.tagName === "text" ? 0 : cx - px;
        mark.setAttribute("transform", `translate(${dx.toFixed(1)} ${(cy - py).toFixed(1)})`);
      }
    }

    function drawAxes() {
      if (isWhole()) return axes.replaceChildren(...written);
      const lines = [];
      for (const v of ticks(y.value(view[2]), y.value(view[3]), true)) {
        const at = y.start + (y.at(v) - y.start - view[2] * (y.end - y.start)) * scale()[1];
        const text = draw("text", { x: x.start - 8, y: at + 4, class: "axis end" });
        text.textContent = grouped(v);
        lines.push(draw("path", { d: `M${x.start} ${at}H${x.end}`, class: "grid-line" }), text);
      }
      ticks(x.value(view[0]), x.value(view[1]), true).forEach((v, i) => {
        const at = x.start + (x.at(v) - x.start - view[0] * (x.end - x.start)) * scale()[0];
        const text = draw("text", { x: at, y: y.start + 22, class: i % 2 ? "axis middle every-other" : "axis middle" });
        text.textContent = grouped(v);
        lines.push(draw("path", { d: `M${at} ${y.start}V${y.end}`, class: "grid-line" }), text);
      });
      return axes.replaceChildren(...lines);
    }

    function show(next) {
      const span = (low, high) => {
        const width = Math.min(Math.max(high - low, 0.001), 1);
        const from = Math.min(Math.max(low, 0), 1 - width);
        return [from, from + width];
      };
      view = [...span(next[0], next[1]), ...span(next[2], next[3])];
      const [sx, sy] = scale();
      const tx = x.start - (x.start + view[0] * (x.end - x.start)) * sx;
      const ty = y.start - (y.start + view[2] * (y.end - y.start)) * sy;
      line.setAttribute("transform", `matrix(${sx} 0 0 ${sy} ${tx} ${ty})`);
      for (const mark of places.keys()) put(mark);
      marks.setAttribute("clip-path", isWhole() ? "none" : `url(#${id})`);
      drawAxes();
    }

    // The mean place of the points in the window, which a zoom keeps in sight; its middle where there are none.
    function centre() {
      const seen = [...places].filter(([mark]) => mark.tagName !== "text").map(([, [px, py]]) => [
        (px - x.start) / (x.end - x.start), (py - y.start) / (y.end - y.start),
      ]).filter(([u, v]) => u >= view[0] && u <= view[1] && v >= view[2] && v <= view[3]);
      if (!seen.length) return [(view[0] + view[1]) / 2, (view[2] + view[3]) / 2];
      return [0, 1].map((i) => seen.reduce((sum, place) => sum + place[i], 0) / seen.length);
    }

    function zoom(factor) {
      const [width, height] = [(view[1] - view[0]) / factor, (view[3] - view[2]) / factor];
      const [mx, my] = centre();
      show([mx - width / 2, mx + width / 2, my - height / 2, my + height / 2]);
    }

    function shift(right, up) {
      const [dx, dy] = [right * (view[1] - view[0]), up * (view[3] - view[2])];
      show([view[0] + dx, view[1] + dx, view[2] + dy, view[3] + dy]);
    }

    // The place of the pointer in parts of the whole axes.
    function partOf(event) {
      const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const [u, v] = [(p.x - x.start) / (x.end - x.start), (p.y - y.start) / (y.end - y.start)];
      return [p, view[0] + u * (view[1] - view[0]), view[2] + v * (view[3] - view[2])];
    }

    let from = null;
    let frame = null;
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || (event.pointerType !== "mouse" && isWhole())) return;
      from = partOf(event);
      if (event.pointerType !== "mouse") svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (from === null) return;
      const to = partOf(event);
      if (event.pointerType !== "mouse") {
        show([view[0] + from[1] - to[1], view[1] + from[1] - to[1], view[2] + from[2] - to[2], view[3] + from[2] - to[2]]);
        return;
      }
      const [left, top] = [Math.min(from[0].x, to[0].x), Math.min(from[0].y, to[0].y)];
      const size = { width: Math.abs(to[0].x - from[0].x), height: Math.abs(to[0].y - from[0].y) };
      frame ??= svg.appendChild(draw("rect", { class: "frame" }));
      for (const [key, value] of Object.entries({ x: left, y: top, ...size })) frame.setAttribute(key, value);
    });
    window.addEventListener("pointerup", (event) => {
      if (frame !== null) {
        const to = partOf(event);
        const isLarge = Number(frame.getAttribute("width")) > 8 && Number(frame.getAttribute("height")) > 8;
        const range = (i) => [Math.min(from[i], to[i]), Math.max(from[i], to[i])];
        if (isLarge) show([...range(1), ...range(2)]);
        frame.remove();
        frame = null;
      }
      from = null;
    });
    window.addEventListener("pointercancel", () => { frame?.remove(); frame = from = null; });
    const keys = {
      ArrowLeft: () => shift(-0.2, 0), ArrowRight: () => shift(0.2, 0), ArrowUp: () => shift(0, 0.2),
      ArrowDown: () => shift(0, -0.2), "+": () => zoom(ZOOM), "-": () => zoom(1 / ZOOM), 0: () => show([0, 1, 0, 1]),
    };
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      event.preventDefault();
      keys[event.key]();
    });
    const buttons = [
      button("Zoom in", () => zoom(ZOOM)), button("Zoom out", () => zoom(1 / ZOOM)), button("Whole", () => show([0, 1, 0, 1])),
      make("span", { class: "hint" }, "or drag a frame; keys: + - 0 and arrows. Click a small dot for its core."),
    ];
    svg.before(make("div", { class: "controls" }, ...buttons));
    return {
      move(mark, synops, us) {
        places.set(mark, [x.at(synops), y.at(us)]);
        put(mark);
      },
    };
  }

  // ---- one run: its maps, plots, tables and details

  function open(root) {
    const data = JSON.parse(root.querySelector("script.data").textContent);
    const { cores, work, sources, floorline } = data;
    const links = linksOf(data.links);
    const n = data.by_step.n_steps;
    const perStep = data.n_samples * data.n_steps;
    const nCores = cores.x.length;
    const tables = {};
    for (const [name, text] of Object.entries(data.by_step.cores)) tables[name] = unpack(text);
    const flits = unpack(data.by_step.flits);
    const intoCores = unpackTraffic(data.traffic.cores);
    const overLinks = unpackTraffic(data.traffic.links);

    const squares = [...root.querySelectorAll(".cores > rect")];
    const labels = [...root.querySelectorAll(".label")];
    const arrows = [...root.querySelectorAll(".links > *")];
    const routerSquares = [...root.querySelectorAll(".routers > rect")];
    const points = [...root.querySelectorAll(".core-points > circle")];
    const arrowLink = links.map((_, i) => i).filter((i) => BETWEEN_ROUTERS.has(links[i][2]));
    const routers = new Map();
    links.forEach(([x, y, kind], i) => {
      if (BETWEEN_ROUTERS.has(kind)) return;
      const key = `${x},${y}`;
      if (!routers.has(key)) routers.set(key, { x, y, links: [] });
      routers.get(key).links.push(i);
    });
    const routerList = [...routers.values()];
    const hottestLink = links.reduce((most, link) => Math.max(most, link[3]), 0) || 1;

    // ---- colors

    const shades = Array.from({ length: N_SHADES + 1 }, (_, i) => {
      const part = i / N_SHADES;
      const k = Math.max(data.heat.findIndex(([p]) => part <= p), 1);
      const [[low, a], [high, b]] = [data.heat[k - 1], data.heat[k]];
      return `rgb(${a.map((v, c) => Math.round(v + ((b[c] - v) * (part - low)) / (high - low))).join(" ")})`;
    });
    const fills = new Map([...squares, ...arrows, ...routerSquares].map((e) => [e, e.getAttribute("fill")]));
    const now = new Map(fills);

    function paint(element, color) {
      if (now.get(element) === color) return;
      now.set(element, color);
      element.setAttribute("fill", color);
    }

    const shade = (part) => shades[Math.round(Math.min(Math.max(part, 0), 1) * N_SHADES)];
    const ofTime = (us) => rounded(us, data.time_basis);
    const ofEnergy = (nj) => rounded(nj, data.energy_basis);
    const unitOf = (figure) => (figure === "busy_cycles" ? work.cycle_us / data.n_samples : 1 / data.n_samples);
    const ofCore = (figure, core, step) => tables[figure][core * n + step] * unitOf(figure);
    const ofLink = (link, step) => flits[link * n + step] / data.n_samples;
    const largest = (numbers) => numbers.reduce((most, v) => Math.max(most, v), 0);
    const legends = [squares, arrows.length ? arrows : routerSquares].map((marks) => {
      const legend = marks[0]?.closest("svg").nextElementSibling;
      if (!legend) return null;
      const [top, what] = [legend.querySelector(".hottest"), legend.querySelector(".what")];
      return { top, what, texts: [top.textContent, what.textContent] };
    });

    function explain(legend, top, what) {
      if (legend) [legend.top.textContent, legend.what.textContent] = top === null ? legend.texts : [top, what];
    }

    function mean(figure, core) {
      let sum = 0;
      for (let h = 0; h < n; h++) sum += tables[figure][core * n + h];
      return (sum * unitOf(figure)) / Math.max(n, 1);
    }

    function color(step, figure, peaks) {
      const isOriginal = step < 0 && figure === Object.keys(tables)[0];
      const means = step < 0 && !isOriginal ? squares.map((_, core) => mean(figure, core)) : null;
      const top = means === null ? peaks[figure] : largest(means);
      const dark = (part) => part > DARK_FROM;
      squares.forEach((square, core) => {
        const value = means === null ? (step < n && step >= 0 ? ofCore(figure, core, step) : 0) : means[core];
        paint(square, isOriginal ? fills.get(square) : shade(value / (top || 1)));
        if (labels.length && !isOriginal) labels[core].classList.toggle("light", dark(value / (top || 1)));
      });
      if (labels.length && isOriginal) labels.forEach((label, core) => label.classList.toggle("light", wasLight[core]));
      const unit = figure === "busy_cycles" ? "busiest unit, us" : FIGURES[figure];
      explain(legends[0], isOriginal ? null : grouped(figure === "busy_cycles" ? ofTime(top) : top), step < 0 ? `${unit}, mean of ${counted(n, "step")}` : `${unit} in hardware step ${step}`);
      const isKnown = step >= 0 && step < n;
      const topFlits = peaks.flits || 1;
      arrows.forEach((arrow, i) => paint(arrow, step < 0 ? fills.get(arrow) : shade(isKnown ? ofLink(arrowLink[i], step) / topFlits : 0)));
      routerSquares.forEach((square, i) => {
        const value = isKnown ? largest(routerList[i].links.map((link) => ofLink(link, step))) : 0;
        paint(square, step < 0 ? fills.get(square) : shade(value / topFlits));
      });
      explain(legends[1], step < 0 ? null : grouped(peaks.flits), `flits in hardware step ${step}; squares: the busiest of a router's links to its cores`);
    }

    const wasLight = labels.map((label) => label.classList.contains("light"));

    // ---- plots

    const plot = root.querySelector("svg.floorline");
    const floor = plot === null ? null : zoomable(plot);

    function movePoints(step) {
      points.forEach((point, core) => {
        const isStep = step >= 0 && step < n;
        const synops = isStep ? ofCore("synops", core, step) : cores.synops_per_step[core];
        const busy = isStep ? ofCore("busy_cycles", core, step) : cores.busy_us_per_step[core];
        floor.move(point, synops, floorline.barrier_us + busy);
      });
    }

    const stepPlot = root.querySelector("svg.steps");
    let mark = null;

    function markStep(step) {
      if (stepPlot === null) return;
      mark?.remove();
      mark = null;
      if (step < 0 || step >= data.n_steps) return;
      const [x, y] = [axisOf(stepPlot.dataset.x, false), axisOf(stepPlot.dataset.y, false)];
      mark = draw("path", { d: `M${x.at(step)} ${y.start}V${y.end}`, class: "now" });
      stepPlot.append(mark);
    }

    // ---- details of a core, a link, a router

    const detail = root.querySelector(".detail");
    let shownStep = -1;
    let inStep = null; // Writes what the core or link in the details did in the step that is shown.

    function details(title, ...content) {
      const heading = make("h2", { tabindex: "-1" }, title);
      const close = button("Close", () => { detail.hidden = true; select(null, []); }, { class: "close" });
      detail.replaceChildren(make("div", { class: "controls" }, close), heading, ...content.filter((part) => part !== null));
      detail.hidden = false;
      heading.focus({ preventScroll: true });
      detail.scrollIntoView({ block: "nearest" });
    }

    function select(chosen, senders) {
      for (const element of root.querySelectorAll(".chosen, .sends")) element.classList.remove("chosen", "sends");
      for (const element of senders) element.classList.add("sends");
      if (chosen !== null) chosen.forEach((element) => element?.classList.add("chosen"));
    }

    const coreButton = (core) => button(`core ${core}`, () => showCore(core), { class: "inline" });
    const place = (core) => (core < 0 ? "outside" : coreButton(core));
    const siteOf = (core) => `(${cores.x[core]}, ${cores.y[core]}) port ${cores.port[core]}`;
    const layersOf = (core) => cores.layers[core].map(([i, k]) => `${sources[i]}: ${counted(k, "neuron")}`).join(", ");
    const share = (part, whole) => (whole > 0 ? percent((100 * part) / whole) : "–");

    function stepLine(write) {
      const line = make("p", { class: "in-step" });
      inStep = () => { line.textContent = shownStep >= 0 && shownStep < n ? `In hardware step ${shownStep}: ${write(shownStep)}.` : ""; };
      inStep();
      return line;
    }

    function others(item, total, words) {
      return item.others > 0 ? make("p", { class: "others" }, `${words}: ${grouped(item.others / perStep)} per step, ${share(item.others, total)}.`) : null;
    }

    function showCore(core) {
      const item = intoCores[core];
      const total = item.rows.reduce((sum, row) => sum + row.amount, Math.max(item.others, 0));
      const lines = item.rows.map((row) => [sources[row.source], place(row.home), grouped(row.amount / perStep), share(row.amount, total)]);
      const columns = [["layer or input", true], ["on", true], ["messages per step", false], ["of all", false]];
      const rows = [
        ["neurons", layersOf(core)],
        ["axons", `${grouped(cores.in_axons[core])} fan-in, ${grouped(cores.out_axons[core])} fan-out; ${grouped(cores.synapse_bits[core])} bits of synapse memory`],
        ["a mean step", `${grouped(cores.synops_per_step[core])} synops, ${grouped(total / perStep)} messages in`],
      ];
      if (cores.note[core]) rows.push(["note", cores.note[core]]);
      if (cores.busy_us_per_step[core] !== null) rows.push(["time", `the busiest unit works ${withUnit(cores.busy_us_per_step[core], "us", data.time_basis)} per step (${data.time_basis})`]);
      if (cores.energy_pj_per_sample[core] !== null) rows.push(["energy", `${withUnit(cores.energy_pj_per_sample[core] / 1000, "nJ", data.energy_basis)} per sample (${data.energy_basis})`]);
      const line = stepLine((h) => Object.keys(tables).map((f) => (
        f === "busy_cycles" ? `busy ${withUnit(ofCore(f, core, h), "us", data.time_basis)}` : `${grouped(ofCore(f, core, h))} ${FIGURES[f]}`)).join(", "));
      const left = make("div", {}, pairs(rows), line, work === null ? null : costsOf(core));
      const right = make("div", {}, make("h3", {}, "Who sends to it"),
        lines.length ? tableOf(columns, lines) : make("p", {}, "Nobody did in this run."), others(item, total, "All others"));
      details(`Core ${core} at ${siteOf(core)}`, make("div", { class: "halves" }, left, right));
      select([squares[core], points[core]], item.rows.filter((row) => row.home >= 0).map((row) => squares[row.home]));
    }

    function costsOf(core) {
      const lines = [];
      for (const [unit, events] of Object.entries(work.units)) {
        const all = events.reduce((sum, event) => sum + work.cycles_per_step[event][core], 0);
        for (const event of events) {
          const cycles = work.cycles_per_step[event][core];
          if (cycles > 0) lines.push([EVENTS[event], unit, withUnit(cycles * work.cycle_us, "us", data.time_basis), share(cycles, all)]);
        }
      }
      const columns = [["what it costs", true], ["unit", true], ["time per step", false], ["of the unit's work", false]];
      return lines.length ? tableOf(columns, lines) : make("p", {}, "It did nothing in this run.");
    }

    function nameOf(link) {
      const [x, y, kind] = links[link];
      return kind === "segment" ? `segment ${x}-${x + 1}` : kind === "switch" ? `switch ${x}` : `(${x}, ${y}) ${kind}`;
    }

    const flitsIn = (link) => stepLine((h) => `${grouped(ofLink(link, h))} flits`);

    function showLink(link) {
      const [x, y, kind, perMeanStep, peak, waiting] = links[link];
      if (!BETWEEN_ROUTERS.has(kind)) return showRouter(routers.get(`${x},${y}`));
      const item = overLinks[link];
      const total = perMeanStep * perStep;
      const columns = [["layer or input", true], ["from", true], ["to", true], ["flits per step", false], ["of the link's", false]];
      const lines = item.rows.map((row) => [sources[row.source], place(row.home), place(row.to), grouped(row.amount / perStep), share(row.amount, total)]);
      const rows = [["load", `${grouped(perMeanStep)} flits per step, ${share(perMeanStep, hottestLink)} of the busiest`]];
      if (peak !== null) rows.push(["waiting", `${grouped(waiting)} flits in the mean, ${counted(peak, "flit")} at most`]);
      const note = item.others < 0 ? make("p", {}, "Single messages as they were sent: trees share flits on their way, and what was dropped is among them.") : null;
      details(`Link ${nameOf(link)}`, pairs(rows), flitsIn(link), make("h3", {}, "Which messages cross it"),
        lines.length ? tableOf(columns, lines) : make("p", {}, "The messages with most flits do not."), others(item, total, "All others"), note);
      return select([arrows[arrowLink.indexOf(link)]], []);
    }

    function showRouter(router) {
      const columns = [["link", true], ["core", true], ["flits per step", false]];
      const lines = router.links.map((link) => {
        const port = /^port (\d+)/.exec(links[link][2]);
        const core = port === null ? -1 : cores.x.findIndex((x, c) => x === router.x && cores.y[c] === router.y && cores.port[c] === Number(port[1]));
        return [nameOf(link), core < 0 ? "" : coreButton(core), grouped(links[link][3])];
      });
      const line = stepLine((h) => router.links.map((link) => `${links[link][2]} ${grouped(ofLink(link, h))}`).join(", ") + " flits");
      details(`Router (${router.x}, ${router.y})`, line, tableOf(columns, lines),
        make("p", { class: "others" }, "Over these links goes what a core sends and gets: its own details say from whom."));
      select([routerSquares[routerList.indexOf(router)]], []);
    }

    function listen(marks, act) {
      const place = new Map(marks.map((element, i) => [element, i]));
      marks[0]?.parentNode.addEventListener("click", (event) => {
        const i = place.get(event.target);
        if (i !== undefined) act(i);
      });
    }

    listen(squares, showCore);
    listen(points, showCore);
    listen(arrows, (i) => showLink(arrowLink[i]));
    listen(routerSquares, (i) => showRouter(routerList[i]));

    // ---- tables of all cores and links

    function list(box) {
      const known = (name) => cores[name].some((v) => v !== null);
      const figures = [["neurons", (c) => cores.layers[c].reduce((sum, [, k]) => sum + k, 0)], ["synops per step", (c) => cores.synops_per_step[c]]];
      if (known("busy_us_per_step")) figures.push([`busy us per step (${data.time_basis.split(";")[0]})`, (c) => ofTime(cores.busy_us_per_step[c])]);
      figures.push(["fan-in axons", (c) => cores.in_axons[c]], ["fan-out axons", (c) => cores.out_axons[c]], ["synapse bits", (c) => cores.synapse_bits[c]]);
      if (known("energy_pj_per_sample")) figures.push([`nJ per sample (${data.energy_basis.split(";")[0]})`, (c) => ofEnergy(cores.energy_pj_per_sample[c] / 1000)]);
      const columns = [["core", true], ["place", true], ["layers", true], ...figures.map(([name]) => [name, false])];
      const texts = (c) => [`core ${c}`, siteOf(c), layersOf(c), ...figures.map(([, of]) => grouped(of(c)))];
      box.append(longTable("All cores", "Click a core for who sends to it and what it costs.", columns, nCores, texts,
        (c, written) => [coreButton(c), ...written.slice(1)]));
      const hasLoads = links.some((link) => link[4] !== null);
      const linkColumns = [["link", true], ["flits per step", false], ["of the busiest", false], ...(hasLoads ? [["waiting, mean", false], ["peak", false]] : [])];
      const linkTexts = (i) => [nameOf(i), grouped(links[i][3]), share(links[i][3], hottestLink),
        ...(hasLoads ? links[i].slice(4).map((v) => (v === null ? "" : grouped(v))).reverse() : [])];
      box.append(longTable("All links", "Links that carried flits. Click one for the messages that cross it.", linkColumns, links.length, linkTexts,
        (i, written) => [button(written[0], () => showLink(i), { class: "inline" }), ...written.slice(1)]));
    }

    const lists = root.querySelector(".lists");
    if (lists !== null) list(lists);

    const sums = Object.keys(tables).filter((f) => f !== "busy_cycles");
    return {
      name: root.dataset.name ?? "",
      figures: Object.keys(tables),
      peaks: Object.fromEntries([...Object.keys(tables).map((f) => [f, largest(tables[f]) * unitOf(f)]), ["flits", largest(flits) / data.n_samples]]),
      stepAt(event) {
        const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(stepPlot.getScreenCTM().inverse());
        const x = axisOf(stepPlot.dataset.x, false);
        return Math.round(x.value((p.x - x.start) / (x.end - x.start)));
      },
      stepPlot,
      show(step, figure, peaks) {
        shownStep = step;
        color(step, figure, peaks);
        if (floor !== null) movePoints(step);
        markStep(step);
        inStep?.();
      },
      say(step) {
        if (step >= n) return "has no such step";
        const parts = [data.step_us && withUnit(data.step_us[step], "us", data.time_basis), data.bounds && data.bounds[step]].filter(Boolean);
        for (const figure of sums) {
          let sum = 0;
          for (let core = 0; core < nCores; core++) sum += tables[figure][core * n + step];
          parts.push(`${grouped(sum / data.n_samples)} ${FIGURES[figure]}`);
        }
        return parts.join("; ");
      },
    };
  }

  // ---- the slider over hardware steps, for all runs of the page

  function slide(bar, runs) {
    const [range, choice, output] = [bar.querySelector("input"), bar.querySelector("select"), bar.querySelector("output")];
    const act = (name) => bar.querySelector(`[data-do=${name}]`);
    const peaks = {};
    for (const run of runs) for (const [name, peak] of Object.entries(run.peaks)) peaks[name] = Math.max(peaks[name] ?? 0, peak);
    const last = Number(range.max);
    let step = -1;

    function go(next) {
      step = Math.min(Math.max(next, -1), last);
      range.value = Math.max(step, 0);
      range.setAttribute("aria-valuetext", step < 0 ? "mean of all steps" : `hardware step ${step}`);
      act("mean").setAttribute("aria-pressed", step < 0);
      act("back").disabled = step < 0;
      act("on").disabled = step === last;
      for (const run of runs) run.show(step, choice.value, peaks);
      const tell = () => runs.map((run) => (run.name ? `${run.name}: ` : "") + run.say(step)).join(" | ");
      output.textContent = step < 0 ? "mean of all steps" : `step ${step} of 0 to ${last}: ${tell()}`;
    }

    range.addEventListener("input", () => go(Number(range.value)));
    choice.addEventListener("change", () => go(step));
    act("mean").addEventListener("click", () => go(-1));
    act("back").addEventListener("click", () => go(step - 1));
    act("on").addEventListener("click", () => go(step + 1));
    for (const run of runs) run.stepPlot?.addEventListener("click", (event) => go(run.stepAt(event)));
    bar.hidden = false;

    // A browser keeps what it parsed in one piece until it changes: the first step would pay for every mark of a large chip.
    (window.requestIdleCallback ?? setTimeout)(() => {
      for (const run of runs) for (const shown of [0, step]) run.show(shown, choice.value, peaks);
    });
  }

  for (const box of document.querySelectorAll(".table")) enhanceWritten(box);
  const runs = [...document.querySelectorAll(".run")].map(open);
  const bar = document.querySelector(".steps-bar");
  if (bar !== null) slide(bar, runs);
})();
