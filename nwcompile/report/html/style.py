"""Style: the style sheet of report.html, for any width, light and dark, and for print, without fonts or images."""

PAGE = """
:root, svg.map, .legend .unused {
  --ink: #1b2430; --soft: #5b6675; --line: #dfe4ea; --back: #f5f6f8; --card: #ffffff; --good: #15803d; --bad: #b91c1c;
  --memory: #d9480f; --compute: #1c6fd1; --traffic: #5b21b6; --barrier: #7b8794;
  --track: #e9edf1; --hover: #eef1f5; --tile: #f1f3f5; --tile-line: #d5dae0; --control: #8a94a3; --anchor: #1558ad;
  color-scheme: light dark;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --ink: #e6eaf0; --soft: #9ca8b8; --line: #303a47; --back: #12161c; --card: #1a2029; --good: #3fb950; --bad: #f47067;
    --memory: #f0803c; --compute: #58a6ff; --traffic: #d8b9ff; --barrier: #8b98a5;
    --track: #2c3540; --hover: #262e39; --tile: #222a34; --tile-line: #3a4553; --control: #6b7787; --anchor: #79b8ff;
  }
  svg.map, .legend .scale, .legend .unused { filter: invert(.86) hue-rotate(180deg); }  /* large loads are light */
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 1320px; margin: 0 auto; padding: 28px 24px 48px; }
h1 { font-size: 15px; font-weight: 600; margin: 0; color: var(--soft); }
h1, h2, p, li { overflow-wrap: anywhere; }
h2 { font-size: 16px; font-weight: 650; margin: 0 0 4px; }
header { border-left: 6px solid var(--good); padding: 2px 0 2px 18px; margin: 0 0 22px; }
header dl { margin-top: 10px; max-width: 110ch; }
header.bad { border-color: var(--bad); }
.verdict { font-size: clamp(14px, 1.75vw, 21px); line-height: 1.42; font-weight: 560; }
.verdict { margin: 6px 0 0; overflow-wrap: anywhere; }
.grid { display: grid; gap: 18px; grid-template-columns: repeat(2, minmax(0, 1fr)); margin-bottom: 18px; }
.whole { grid-column: span 2; }
.column { display: flex; flex-direction: column; gap: 18px; min-width: 0; }
.column .halves { grid-template-columns: minmax(0, 1fr); }
.column .detail { margin: 0; }
.grid:has(> .run) { row-gap: 0; }  /* the cards of two runs begin at the same heights */
.grid > .run { display: grid; grid-row: span 6; grid-template-rows: subgrid; gap: 0; }
.grid > .run > .card, .run > .detail { margin-bottom: 18px; }
.grid > .run > .detail { grid-row: 4; }
.grid > .run > .detail + .card { grid-row: 5; }
.grid > .run > .detail + .card + .card { grid-row: 6; }
.card, .tile-card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; min-width: 0; }
.card { padding: 18px 20px; }
.card > p, .card > ul { margin: 4px 0 0; font-size: 14px; }
.card > p + dl { margin-top: 12px; }
.card > p.about { margin: 0 0 14px; color: var(--soft); font-size: 13.5px; max-width: 78ch; }
.tiles { display: grid; gap: 12px; grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)); margin-bottom: 18px; }
.tile-card { padding: 12px 16px; }
.tile-card b { display: block; font-size: 23px; font-weight: 640; line-height: 1.3; }
.tile-card .of { font-size: 14px; font-weight: 500; color: var(--soft); }
.tile-card .name, .tile-card .more { color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
ul.warnings { padding-left: 20px; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 4px 18px; margin: 0; font-size: 13.5px; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
dd code { font-size: 12.5px; }
a { color: var(--anchor); }
.good { color: var(--good); }
.wrong { color: var(--bad); }
"""

TABLES = """
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 600; color: var(--soft); font-size: 12.5px; padding: 4px 8px 6px; }
th { vertical-align: bottom; }
.table {
  overflow-x: auto;  /* a shadow marks the side on which columns are out of sight */
  background: linear-gradient(to right, var(--card) 30%, transparent) left / 40px 100% no-repeat local,
    linear-gradient(to left, var(--card) 30%, transparent) right / 40px 100% no-repeat local,
    linear-gradient(to right, var(--tile-line), transparent) left / 10px 100% no-repeat scroll,
    linear-gradient(to left, var(--tile-line), transparent) right / 10px 100% no-repeat scroll;
}
tfoot td { border-top: 2px solid var(--line); }
td.left { overflow-wrap: break-word; min-width: 9ch; white-space: normal; }
td { text-align: right; padding: 7px 8px; border-top: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
th.left, td.left { text-align: left; }
td.name { font-weight: 600; overflow-wrap: break-word; min-width: 10ch; white-space: normal; }
td > span { white-space: nowrap; }
.bar { display: inline-block; width: 84px; height: 9px; border-radius: 5px; overflow: hidden; }
.bar { background: var(--track); }
.bar + span { display: inline-block; min-width: 7.5ch; text-align: right; margin-left: 4px; }
.bar i { display: block; height: 100%; background: var(--compute); border-radius: 5px; }
.bar.full i { background: var(--bad); }
.bar.energy i { background: #c47f17; }
.bar.time i { background: var(--memory); }
.stack { display: flex; height: 22px; border-radius: 5px; overflow: hidden; margin: 4px 0 10px; }
.stack i { display: block; height: 100%; min-width: 1px; }
.stack.low { height: 12px; min-width: 120px; margin: 0; }
.stack + .legend { margin-bottom: 18px; }
"""

CONTROLS = r"""
button, input, select { font: inherit; font-size: 13.5px; color: var(--ink); }
button, select, input[type=search] {
  background: var(--card); border: 1px solid var(--control); border-radius: 6px; padding: 3px 10px; min-height: 30px;
}
button { cursor: pointer; }
button:hover { background: var(--hover); }
button:disabled { color: var(--control); cursor: default; background: var(--back); }
button[aria-pressed=true] { background: var(--ink); color: var(--card); border-color: var(--ink); }
:focus-visible { outline: 3px solid var(--compute); outline-offset: 2px; }
h2:focus { outline: none; }
[hidden] { display: none !important; }
.controls { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; margin: 0 0 8px; font-size: 13.5px; }
.controls .hint, .rows, .others, .in-step { color: var(--soft); font-size: 13px; }
.controls input[type=search] { max-width: 100%; }
.card > p.rows { display: flex; gap: 12px; align-items: center; min-height: 1px; }
.rows button { padding: 1px 8px; min-height: 24px; }
th button {
  border: 0; padding: 0; min-height: 0; background: none; font-size: 12.5px; font-weight: 600; color: var(--soft);
  text-align: inherit;
}
th button::after { content: "\a0\2195"; color: var(--control); }
th[aria-sort=ascending] button::after { content: "\a0\2191"; color: var(--ink); }
th[aria-sort=descending] button::after { content: "\a0\2193"; color: var(--ink); }
button.inline {
  border: 0; padding: 0; min-height: 0; background: none; color: var(--anchor); text-decoration: underline;
  white-space: nowrap;
}
.steps-bar {
  display: flex; flex-wrap: wrap; gap: 8px 14px; align-items: center; position: sticky; top: 0; z-index: 2;
  background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 9px 14px; margin-bottom: 18px;
  box-shadow: 0 2px 8px rgb(27 36 48 / 12%); font-size: 13.5px;
}
.steps-bar label { display: flex; gap: 8px; align-items: center; }
.steps-bar label:has(input) { flex: 1 1 260px; white-space: nowrap; }
.steps-bar input { flex: 1; min-width: 90px; accent-color: var(--compute); }
.steps-bar output { flex: 1 1 100%; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; min-height: 1.5em; }
.steps-note { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 9px 14px; }
.steps-note { margin: 0 0 18px; }
.detail { margin-bottom: 18px; border-left: 6px solid var(--compute); scroll-margin: 110px; }
.detail .controls { float: right; }
.detail h3 { font-size: 14px; margin: 12px 0 4px; }
.halves { display: grid; gap: 8px 28px; grid-template-columns: repeat(2, minmax(0, 1fr)); clear: both; }
.halves h3 { margin-top: 0; }
.halves .table { margin-top: 8px; }
.lists > .card { margin-bottom: 18px; }
.lists .table { max-height: 560px; overflow: auto; }
.lists td:nth-child(2) { white-space: nowrap; }
.lists td:nth-child(3).left { min-width: 24ch; }
"""

DRAWINGS = """
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg.map { margin: 0 auto; }
svg text { font-family: inherit; fill: var(--soft); font-size: 12px; }
svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg .name { font-size: 13px; fill: var(--ink); }
svg .note { fill: var(--ink); }
svg .label { text-anchor: middle; fill: #000000; pointer-events: none; }
svg .label.light { fill: #ffffff; }
svg .tile { fill: var(--tile); stroke: var(--tile-line); stroke-width: .7; }
svg .mesh { stroke: var(--tile-line); fill: none; }
svg .cores > *, svg .links > *, svg .routers > *, svg .core-points > * { cursor: pointer; }
svg g > rect:hover, svg .links > :hover, svg circle:hover { stroke: var(--ink); stroke-width: 1.6; }
svg .sends { stroke: var(--compute); stroke-width: 2; }
svg .chosen { stroke: var(--ink); stroke-width: 3; }
svg .links .chosen { stroke-width: 1.2; }
svg .core-points circle { fill: var(--soft); fill-opacity: .55; }
svg .frame { fill: var(--compute); fill-opacity: .12; stroke: var(--compute); }
svg .now { stroke: var(--bad); stroke-width: 2; fill: none; }
svg path.floorline { vector-effect: non-scaling-stroke; }
svg .grid-line { stroke: var(--track); fill: none; }
svg .floorline { stroke: var(--ink); stroke-width: 2; fill: none; stroke-linejoin: round; }
svg circle.bound { fill: var(--card); fill-opacity: .4; stroke: var(--compute); stroke-width: 1.4; }
svg path.predicted { stroke: var(--traffic); stroke-width: 1.5; fill: none; }
svg path.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
svg path.line.measured { stroke: var(--ink); }
svg path.line.bound { stroke: var(--compute); }
svg path.line.predicted { stroke-dasharray: 5 4; }
svg path.floor { stroke: var(--barrier); stroke-dasharray: 2 3; fill: none; }
svg circle.dot { stroke: var(--card); }
.memory { fill: var(--memory); background: var(--memory); }
.compute { fill: var(--compute); background: var(--compute); }
.traffic { fill: var(--traffic); background: var(--traffic); }
.barrier { fill: var(--barrier); background: var(--barrier); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 14px; align-items: center; margin-top: 10px; }
.legend + .table { margin-top: 8px; }
.legend .core { background: var(--soft); opacity: .7; transform: scale(.6); }
.legend { color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
.legend .scale { width: 130px; height: 10px; border-radius: 5px; }
.legend .mark { display: inline-block; width: 11px; height: 11px; border-radius: 50%; margin-right: 6px; }
.legend .mark { vertical-align: -1px; }
.legend .measured { background: var(--ink); }
.legend .line { width: 22px; height: 0; border-radius: 0; border: 0 solid var(--ink); border-top-width: 2px; }
.legend .line { vertical-align: 3px; }
.legend .floor { border-top: 2px dotted var(--barrier); }
.legend .bound { border: 2px solid var(--compute); }
.legend .line.bound { border-width: 2px 0 0; }
.legend .unused { border: 1px solid var(--tile-line); border-radius: 2px; background: var(--tile); }
.legend .line.predicted { border-top: 2px dashed var(--traffic); }
.legend .predicted:not(.line) {
  border-radius: 0;
  background: linear-gradient(var(--traffic), var(--traffic)) center/100% 2px no-repeat,
    linear-gradient(var(--traffic), var(--traffic)) center/2px 100% no-repeat;
}
"""

WIDTHS = """
@media (max-width: 1160px) {
  table { font-size: 13px; }
  th, td { padding-left: 6px; padding-right: 6px; }
  td { white-space: normal; }  /* a wide table has higher rows before it scrolls */
  .bar { width: 44px; }
  .stack.low { min-width: 60px; }
}
@media (max-width: 980px) {
  .grid { grid-template-columns: minmax(0, 1fr); }
  .whole { grid-column: auto; }
}
@media (max-width: 620px) {
  main { padding: 16px 12px 32px; }
  header { padding-left: 12px; }
  .card { padding: 14px; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .tile-card { padding: 10px 12px; }
  .tile-card b { font-size: 19px; }
  table { font-size: 12.5px; }
  th, td { padding-left: 4px; padding-right: 4px; }
  td { white-space: nowrap; }
  td.name, td.left { min-width: 8ch; }
  th:not([aria-sort=ascending], [aria-sort=descending]) button::after { content: none; }
  svg:not(.small) :is(text, .name) { font-size: 21px; }
  svg:not(.small) .label { font-size: 15px; }
  svg .every-other { display: none; }
  h1 { font-size: 12.5px; }
  .detail { scroll-margin: 220px; }
  .halves { grid-template-columns: minmax(0, 1fr); }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: 8px; }
}
@media print {
  body { background: #ffffff; }
  main { max-width: none; padding: 0; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  .card, .tile-card { break-inside: avoid; }
  .lists .card { break-inside: auto; }
  .controls, .steps-bar, .rows button { display: none !important; }
  .table, .lists .table { overflow: visible; max-height: none; }
  th button::after { content: none; }
  table { font-size: 11px; }
  th, th button { font-size: 10.5px; }
  th, td { padding: 3px 4px; }
  td, td > span:not(:has(.bar)) { white-space: normal; }
  td.name, td.left { min-width: 7ch; }
  .bar { width: 30px; }
  .bar + span { min-width: 0; }
}
"""

STYLE = PAGE + TABLES + CONTROLS + DRAWINGS + WIDTHS
