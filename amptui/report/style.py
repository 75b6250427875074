"""The style of an HTML report: one column, quiet colours that also differ in shape and words, and a page for print."""

STYLE = """
:root { --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --back: #f6f8fa;
  --ok: #116329; --warn: #7d4e00; --fail: #a40e26; --trial: #0550ae; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.5rem 4rem; color: var(--ink); background: #fff;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.35rem; margin: 2.8rem 0 .8rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .5rem; }
h1, h2, h3, p, li, dt, dd, td, th, figcaption { overflow-wrap: anywhere; unicode-bidi: isolate; }
td, th { overflow-wrap: break-word; } td code { overflow-wrap: anywhere; }
p { margin: .5rem 0; max-width: 48rem; }
p, li, dd, td, th { white-space: pre-line; }
.subtitle, .note, .described, footer { color: var(--soft); font-size: .9rem; }
.banner { margin: 1.2rem 0; padding: .9rem 1.1rem; max-width: none; border-left: 6px solid; background: var(--back); }
.banner strong { margin-right: .6rem; letter-spacing: .03em; }
.banner > span { color: var(--ink); }
.ok { color: var(--ok); } .warn { color: var(--warn); } .fail { color: var(--fail); }
.skipped, .withheld { color: var(--warn); }
.mark { font-weight: 700; }
nav ul { list-style: none; padding: 0; margin: 1rem 0 0; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; }
a { color: var(--trial); }
dl { margin: .8rem 0; }
dl div { display: grid; grid-template-columns: 11rem 1fr; gap: 1rem; padding: .3rem 0;
  border-bottom: 1px solid #eaeef2; }
dt { color: var(--soft); } dd { margin: 0; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; font-size: .875em; }
code { unicode-bidi: isolate; }
pre { margin: 0; padding: 1rem; overflow-x: auto; background: var(--back); border: 1px solid var(--line);
  line-height: 1.45; }
.table { overflow-x: auto; margin: 1rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { text-align: left; vertical-align: top; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid #eaeef2; }
thead th { color: var(--soft); font-weight: 600; border-bottom-color: var(--line); white-space: normal; }
tbody th { font-weight: 400; }
.number { text-align: right; }
th:not(:last-child), td:not(:last-child) { padding-right: 1.3rem; }
figure { margin: 1.2rem 0; }
figcaption { font-weight: 600; margin-bottom: .3rem; }
.part { border-left: 3px solid var(--line); padding-left: 1rem; margin: 1.4rem 0; }
.part h3 { margin-top: 0; }
svg { display: block; width: 100%; height: auto; font-family: inherit; }
svg text { fill: var(--soft); font-size: 12px; paint-order: stroke; stroke: #fff; stroke-width: 3px; }
svg .legend { fill: var(--ink); }
svg .grid { stroke: #eaeef2; } svg .axis { stroke: var(--soft); }
svg .limit { stroke: var(--soft); stroke-dasharray: 2 3; }
svg polyline, svg path, svg line.trial, svg line.faint { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
svg .trial { stroke: var(--trial); } svg .faint { stroke: #6e7781; stroke-dasharray: 6 4; }
svg .dot { stroke-dasharray: none; fill: var(--trial); } svg .faint.dot { fill: #6e7781; }
svg .bad { stroke: #cf222e; stroke-width: 2.2; stroke-dasharray: none; }
svg .applied { fill: #8fb3d9; } svg .no-gradient { fill: #afb8c1; }
svg .skipped { fill: #fff; stroke: #9a6700; stroke-width: 1.5; } svg .withheld { fill: #cf222e; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); }
@media (max-width: 40rem) { dl div { grid-template-columns: 1fr; gap: 0; } body { padding: 1rem; } }
@media print {
  @page { margin: 16mm 15mm; }
  html { font-size: 9pt; } body { max-width: none; padding: 0; }
  nav { display: none; } a { color: inherit; text-decoration: none; }
  h2 { margin-top: 1.6rem; } h2, h3, caption, figcaption { break-after: avoid; }
  .plot, tr, dl div, .banner, li { break-inside: avoid; }
  .table, pre { overflow: visible; } pre { white-space: pre-wrap; overflow-wrap: anywhere; }
  thead { display: table-header-group; } tbody tr:first-child { break-before: avoid; }
  p, li { orphans: 3; widows: 3; }
  * { print-color-adjust: exact; }
}
"""
