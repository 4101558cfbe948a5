"""The style sheet of report.html: light, readable at any width and on paper, no font or picture from elsewhere."""

PAGE = """
:root {
  --ink: #1b2430; --soft: #5b6675; --line: #dfe4ea; --back: #f5f6f8; --card: #ffffff; --good: #15803d; --bad: #b91c1c;
  --memory: #d9480f; --compute: #1c6fd1; --traffic: #7a3fc4; --barrier: #7b8794;
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 1320px; margin: 0 auto; padding: 28px 24px 48px; }
h1 { font-size: 15px; font-weight: 600; margin: 0; color: var(--soft); }
h2 { font-size: 16px; font-weight: 650; margin: 0 0 4px; }
header { border-left: 6px solid var(--good); padding: 2px 0 2px 18px; margin: 0 0 22px; }
header.bad { border-color: var(--bad); }
.verdict { font-size: 21px; line-height: 1.42; font-weight: 560; margin: 6px 0 0; overflow-wrap: anywhere; }
.grid { display: grid; gap: 18px; grid-template-columns: repeat(2, minmax(0, 1fr)); margin-bottom: 18px; }
.whole { grid-column: span 2; }
.column { display: flex; flex-direction: column; gap: 18px; }
.card, .tile-card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; min-width: 0; }
.card { padding: 18px 20px; }
.card > p, .card > ul { margin: 4px 0 0; }
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
.good { color: var(--good); }
.wrong { color: var(--bad); }
"""

TABLES = """
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 600; color: var(--soft); font-size: 12.5px; padding: 4px 10px 6px; }
th { vertical-align: bottom; }
td { text-align: right; padding: 7px 10px; border-top: 1px solid var(--line); }
th:first-child, td:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
th.left, td.left { text-align: left; }
td.name { font-weight: 600; overflow-wrap: anywhere; min-width: 10ch; }
td > span { white-space: nowrap; }
.bar { display: inline-block; width: 84px; height: 9px; border-radius: 5px; background: #e9edf1; overflow: hidden; }
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

DRAWINGS = """
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg.map { margin: 0 auto; }
svg text { font-family: inherit; fill: var(--soft); font-size: 12px; }
svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg .name { font-size: 13px; fill: var(--ink); }
svg .note { fill: var(--ink); }
svg .label { text-anchor: middle; fill: #3b2a12; pointer-events: none; }
svg .label.light { fill: #ffffff; }
svg .tile { fill: #f1f3f5; stroke: #d5dae0; stroke-width: .7; }
svg .mesh { stroke: #d5dae0; fill: none; }
svg .core:hover, svg .link:hover, svg circle:hover { stroke: var(--ink); stroke-width: 1.6; }
svg .grid-line { stroke: #e8ecf0; fill: none; }
svg .floorline { stroke: var(--ink); stroke-width: 2; fill: none; stroke-linejoin: round; }
svg circle.bound { fill: #ffffff; fill-opacity: .4; stroke: var(--compute); stroke-width: 1.4; }
svg path.predicted { stroke: var(--traffic); stroke-width: 1.5; fill: none; }
svg path.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
svg path.line.measured { stroke: var(--ink); }
svg path.line.bound { stroke: var(--compute); }
svg path.line.predicted { stroke-dasharray: 5 4; }
svg path.floor { stroke: var(--barrier); stroke-dasharray: 2 3; fill: none; }
svg circle.dot { stroke: #ffffff; }
.memory { fill: var(--memory); background: var(--memory); }
.compute { fill: var(--compute); background: var(--compute); }
.traffic { fill: var(--traffic); background: var(--traffic); }
.barrier { fill: var(--barrier); background: var(--barrier); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 14px; align-items: center; margin-top: 10px; }
.legend + table { margin-top: 8px; }
.legend { color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
.legend .scale { width: 130px; height: 10px; border-radius: 5px; }
.legend .mark { display: inline-block; width: 11px; height: 11px; border-radius: 50%; margin-right: 6px; }
.legend .mark { vertical-align: -1px; }
.legend .measured { background: var(--ink); }
.legend .bound { border: 2px solid var(--compute); }
.legend .predicted {
  border-radius: 0;
  background: linear-gradient(var(--traffic), var(--traffic)) center/100% 2px no-repeat,
    linear-gradient(var(--traffic), var(--traffic)) center/2px 100% no-repeat;
}
"""

WIDTHS = """
@media (max-width: 980px) {
  .grid { grid-template-columns: minmax(0, 1fr); }
  .whole { grid-column: auto; }
  table { font-size: 13px; }
  th, td { padding-left: 6px; padding-right: 6px; }
  .bar { width: 44px; }
}
@media (max-width: 620px) {
  main { padding: 16px 12px 32px; }
  header { padding-left: 12px; }
  .verdict { font-size: 17px; }
  .card { padding: 14px; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .tile-card { padding: 10px 12px; }
  .tile-card b { font-size: 19px; }
  svg text, svg .name { font-size: 21px; }
  svg .label { font-size: 15px; }
  svg .every-other { display: none; }
  thead { display: none; }
  tr { display: block; border-top: 1px solid var(--line); padding: 8px 0; }
  tr:first-child { border: 0; }
  td, td.left { display: flex; justify-content: space-between; gap: 12px; border: 0; padding: 2px 0; }
  td.left { text-align: right; }
  td::before { content: attr(data-label); color: var(--soft); text-align: left; }
  td:empty { display: none; }
  td.name { text-align: left; font-size: 15px; }
  td.name::before { content: none; }
  .bar { width: 84px; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: 8px; }
}
@media print {
  body { background: #ffffff; }
  main { max-width: none; padding: 0; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  .card, .tile-card { break-inside: avoid; }
}
"""

STYLE = PAGE + TABLES + DRAWINGS + WIDTHS
