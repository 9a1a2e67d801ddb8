"""The page's style sheet: light, dark and paper; wide and narrow.

Series colors follow Okabe and Ito's palette for color-blind readers ("Color Universal
Design", 2008), darkened on white and lightened on black to keep a contrast of 3:1.
"""

CSS = """
:root {
  color-scheme: light dark;
  --page: #f6f6f3; --card: #ffffff; --ink: #1b1e23; --muted: #5d626b; --line: #e2e3e6;
  --s1: #0b69ad; --s2: #c75300; --s3: #00805a; --s4: #a94f86; --s5: #8a6a00;
  --right: 11 105 173; --wrong: 199 83 0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #111316; --card: #191c20; --ink: #e9ebee; --muted: #9da3ad; --line: #2f343b;
    --s1: #62b2f2; --s2: #ff9d5c; --s3: #42c79c; --s4: #e59ac6; --s5: #e3c04d;
    --right: 45 120 190; --wrong: 235 120 40;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -.01em; }
h2 { font-size: 19px; margin: 0 0 4px; letter-spacing: -.005em; }
h3 { font-size: 14px; margin: 20px 0 6px; color: var(--muted); font-weight: 600; }
h1, h2, td, th, dd, dt, li, p, figcaption { overflow-wrap: anywhere; }
p { margin: 0 0 12px; }
code { font: 12.5px/1.4 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.subtitle, .lead { color: var(--muted); }
.lead { max-width: 72ch; }
.price { margin: 16px 0 0; }
nav { display: flex; flex-wrap: wrap; gap: 4px 17px; margin: 16px 0 20px; font-size: 13.5px; }
a { color: var(--s1); text-decoration: none; }
a:hover, a:focus { text-decoration: underline; }
:focus-visible { outline: 2px solid var(--s1); outline-offset: 2px; }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 14px;
  padding: 24px 28px; margin: 0 0 20px; scroll-margin-top: 12px;
}
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(300px, 100%), 1fr));
  gap: 16px 32px; align-items: start; }
.columns > * { min-width: 0; }

.hero { display: grid; grid-template-columns: minmax(0, 5fr) minmax(0, 6fr); gap: 24px 48px; }
.outcome { margin: 0 0 20px; padding: 10px 14px; border-radius: 8px;
  border-left: 4px solid var(--c); background: color-mix(in srgb, var(--c) 9%, transparent); }
.outcome.accepted { --c: var(--s3); } .outcome.rejected { --c: var(--s2); }
.score { font-size: 64px; line-height: 1; font-weight: 650; letter-spacing: -.03em;
  font-variant-numeric: tabular-nums; margin: 4px 0 2px; }
.score-label { color: var(--muted); }
.scale { position: relative; height: 34px; margin: 18px 0 4px; }
.scale .track, .scale .interval { position: absolute; top: 6px; height: 8px; border-radius: 4px; }
.scale .track { left: 0; right: 0; background: var(--line); }
.scale .interval { left: calc(var(--low) * 100%); width: calc((var(--high) - var(--low)) * 100%);
  min-width: 4px; background: var(--s1); opacity: .45; }
.scale .point { position: absolute; top: 3px; left: calc(var(--at) * 100%); width: 14px;
  height: 14px; margin-left: -7px; border-radius: 50%; background: var(--s1);
  border: 2px solid var(--card); }
.scale .baseline { position: absolute; top: 0; left: calc(var(--at) * 100%); width: 2px;
  height: 20px; background: var(--ink); }
.scale .tick { position: absolute; top: 20px; font-size: 11.5px; color: var(--muted); }
.findings { margin: 0; padding: 0; list-style: none; }
.findings li { padding: 8px 0 8px 22px; border-top: 1px solid var(--line); position: relative; }
.findings li:first-child { border-top: 0; }
.findings li::before { content: ""; position: absolute; left: 2px; top: 16px; width: 8px;
  height: 8px; border-radius: 50%; background: var(--s3); }
.findings li.warn::before { background: var(--s2); border-radius: 1px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(158px, 1fr)); gap: 1px;
  margin: 24px 0 0; padding: 0; border-top: 1px solid var(--line); }
.tiles div { padding: 14px 12px 2px 0; }
.tiles dt { color: var(--muted); font-size: 12.5px; }
.tiles dd { margin: 0; font-size: 18px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tiles dd small { display: block; font-size: 12.5px; font-weight: 400; color: var(--muted); }

figure { margin: 12px 0 0; min-width: 0; }
figcaption { font-size: 14px; font-weight: 600; }
svg { display: block; width: 100%; height: auto; margin-top: 6px; font-family: inherit; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 4px 0 0; padding: 0;
  list-style: none; font-size: 13px; color: var(--muted); }
.key { display: inline-block; width: 18px; height: 0; margin-right: 6px; vertical-align: middle;
  border-top: 3px solid var(--c); }
.s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); } .s4 { --c: var(--s4); }
.s5 { --c: var(--s5); }
.s6 { --c: var(--s1); } .s7 { --c: var(--s2); } .s8 { --c: var(--s3); } .s9 { --c: var(--s4); }
.s10 { --c: var(--s5); }
.s6, .s7, .s8, .s9, .s10 { border-top-style: dashed; }

.scroll { overflow-x: auto; margin-top: 8px; }
.scroll.tall { max-height: 520px; overflow-y: auto; border: 1px solid var(--line);
  border-radius: 8px; }
.scroll.tall thead th { position: sticky; top: 0; background: var(--card); z-index: 1; }
.scroll.tall th:first-child { padding-left: 12px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums;
  font-size: 14px; }
th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid var(--line); }
tr:last-child > * { border-bottom: 0; }
th { font-weight: 500; }
thead th { color: var(--muted); font-size: 12.5px; vertical-align: bottom;
  overflow-wrap: normal; }
th:first-child { text-align: left; padding-left: 0; max-width: 320px; min-width: 140px; }
td { white-space: nowrap; }
td.text { text-align: left; white-space: normal; min-width: 120px; }
th.text { text-align: left; }
.none { color: var(--muted); }
.bar { min-width: 84px; background-repeat: no-repeat;
  background-image: linear-gradient(var(--c), var(--c)), linear-gradient(var(--line), var(--line));
  background-size: calc(var(--v) * (100% - 20px)) 3px, calc(100% - 20px) 3px;
  background-position: 10px calc(100% - 2px); }

.confusion { width: auto; margin: 0 auto; border-collapse: separate; border-spacing: 2px; }
.confusion th, .confusion td { border: 0; }
.confusion td { text-align: center; padding: 0; min-width: var(--cell); height: 36px;
  border-radius: 4px; background: rgb(var(--wrong) / calc(var(--v) * .7)); }
.confusion td.right { background: rgb(var(--right) / calc(.06 + var(--v) * .9)); }
.confusion td.strong { color: #fff; }
.confusion td.zero { color: var(--muted); opacity: .45; }
.confusion th { font-size: 12.5px; color: var(--muted); max-width: 150px; }
.confusion th:first-child { min-width: 0; }
.confusion thead th { text-align: center; padding: 4px 2px; max-width: var(--cell); }
.confusion thead td { height: auto; background: none; min-width: 0; }
.confusion tbody th { text-align: right; padding: 0 8px 0 0; }
.confusion:is(.many, .crowded) tbody th { min-width: 76px; }
.confusion.many thead th bdi { writing-mode: vertical-rl; transform: rotate(180deg);
  max-height: 120px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.axis { text-align: center; color: var(--muted); font-size: 12.5px; }
.heat { display: block; width: 100%; max-width: 520px; aspect-ratio: 1; image-rendering: pixelated;
  border: 1px solid var(--line); border-radius: 6px; }

.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(132px, 1fr));
  gap: 20px 16px; margin-top: 12px; }
.pictures figure { margin: 0; font-size: 13px; line-height: 1.4; }
.pictures img { display: block; width: 100%; aspect-ratio: 1; object-fit: contain;
  background: var(--page); border: 1px solid var(--line); border-radius: 8px; }
.pictures img.small { image-rendering: pixelated; }
.pictures figcaption { font-weight: 400; font-size: 13px; margin-top: 6px; }
.pictures .line { display: flex; justify-content: space-between; gap: 8px; }
.pictures .line > span { flex: none; color: var(--ink); font-variant-numeric: tabular-nums; }
.pictures b { font-weight: 600; color: var(--ink); }
.pictures figcaption span { color: var(--muted); }
.pictures code { display: block; color: var(--muted); font-size: 11px; }
.slices { columns: 440px; column-gap: 40px; }
.slices > * { break-inside: avoid; padding-top: 1px; }
h3 small { font-weight: 400; }
article.row { display: grid; grid-template-columns: 200px minmax(0, 1fr); gap: 4px 24px;
  padding: 12px 0; border-top: 1px solid var(--line); font-size: 13px; break-inside: avoid; }
article.row .verdict span, article.row code { color: var(--muted); }
article.row dl { margin: 0; display: grid; gap: 0 16px;
  grid-template-columns: repeat(auto-fill, minmax(112px, 1fr)); }
article.row dt { color: var(--muted); font-size: 11.5px; line-height: 1.3; margin-top: 4px; }
article.row dd { margin: 0; line-height: 1.35; font-variant-numeric: tabular-nums; }
.meter { height: 4px; border-radius: 2px; background: var(--line); margin: 4px 0; }
.meter i { display: block; height: 4px; border-radius: 2px; background: var(--s2);
  width: calc(var(--v) * 100%); }

.facts { margin: 8px 0 0; display: grid; gap: 0 40px;
  grid-template-columns: repeat(auto-fill, minmax(min(310px, 100%), 1fr)); }
.facts div { display: flex; justify-content: space-between; gap: 16px; padding: 5px 0;
  border-bottom: 1px solid var(--line); }
.facts dt { color: var(--muted); flex: none; max-width: 55%; }
.facts dd { margin: 0; text-align: right; font-variant-numeric: tabular-nums; }
details { margin-top: 16px; }
summary { color: var(--s1); cursor: pointer; font-size: 14px; }
details > :nth-child(2) { margin-top: 12px; }

@media (max-width: 720px) {
  main { padding: 20px 12px 40px; }
  section { padding: 18px 16px; border-radius: 12px; }
  .hero { grid-template-columns: minmax(0, 1fr); }
  .score { font-size: 52px; }
  article.row { grid-template-columns: minmax(0, 1fr); }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .tiles dd { font-size: 16px; }
  .pictures { gap: 16px 12px; }
  .confusion td { min-width: 26px; height: 28px; font-size: 12px; }
  .confusion thead th { max-width: 60px; }
  .confusion.crowded thead th bdi { writing-mode: vertical-rl; transform: rotate(180deg);
    max-height: 120px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
  .confusion th { max-width: 90px; font-size: 11.5px; }
  /* A shadow at the side to which there is more. */
  .scroll { background:
    linear-gradient(90deg, var(--card) 40%, transparent) 0 0 / 32px 100% no-repeat local,
    linear-gradient(270deg, var(--card) 40%, transparent) 100% 0 / 32px 100% no-repeat local,
    linear-gradient(90deg, var(--line), transparent) 0 0 / 12px 100% no-repeat scroll,
    linear-gradient(270deg, var(--line), transparent) 100% 0 / 12px 100% no-repeat scroll; }
  table { font-size: 13px; }
  th, td { padding: 6px; }
  th:first-child { max-width: 150px; min-width: 84px; }
  td.text:last-child { min-width: 240px; }
  .bar { min-width: 64px; background-position: 6px calc(100% - 2px);
    background-size: calc(var(--v) * (100% - 12px)) 3px, calc(100% - 12px) 3px; }
  /* The others make room for precision and recall. */
  #classes :is(th, td):is(:nth-child(3), :nth-child(n + 6)) { display: none; }
}
@media print {
  :root {
    --page: #fff; --card: #fff; --ink: #000; --muted: #444; --line: #ccc;
    --s1: #0b69ad; --s2: #c75300; --s3: #00805a; --s4: #a94f86; --s5: #8a6a00;
    --right: 11 105 173; --wrong: 199 83 0;
  }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { font-size: 11pt; }
  main { max-width: none; padding: 0; }
  nav { display: none; }
  section { border: 0; padding: 0 0 12pt; margin: 0; }
  .scroll, .scroll.tall { overflow: visible; max-height: none; border: 0; }
  figure, tr, .hero, .facts div { break-inside: avoid; }
  .confusion { break-inside: avoid; }
  h2, h3, .lead { break-after: avoid; }
}
"""
