# benchmarks/report/style.py -- The style sheet of the page: two schemes, one column on small screens.
# SPDX-License-Identifier: Apache-2.0
"""No picture is wider than it was drawn, no table wider than its window."""

from __future__ import annotations

from .palette import variables

_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"DejaVu Sans",sans-serif;overflow-wrap:break-word}
header,main,footer{max-width:1200px;margin:0 auto;padding:0 16px}
h1{font-size:clamp(1.4rem,5vw,2rem);line-height:1.2;margin:24px 0 4px}
h2{font-size:1.25rem;line-height:1.3;margin:0 0 4px}
.subtitle,.caption,.note{color:var(--muted)}
.subtitle{margin:0 0 14px;max-width:100ch}
.caption{margin:0 0 8px;max-width:100ch}
.note{font-size:.875rem;margin:4px 0 8px;max-width:110ch}
.warning{border-left:3px solid var(--loss);padding:2px 0 2px 12px;color:var(--ink)}
section{background:var(--surface);border:1px solid var(--grid);border-radius:12px;padding:16px 18px;margin:14px 0;
min-width:0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px;margin:0}
.tiles div{background:var(--surface);border:1px solid var(--grid);border-radius:12px;padding:10px 14px;
display:flex;flex-direction:column-reverse;justify-content:flex-end}
.tiles dt{color:var(--muted);font-size:.85rem;line-height:1.35}
.tiles dd{margin:0;font-size:1.5rem;font-weight:650;font-variant-numeric:tabular-nums}
nav{display:flex;flex-wrap:wrap;gap:4px 18px;margin:12px 0 0;font-size:.9rem}
a{color:var(--ours)}
.panels{display:flex;flex-wrap:wrap;gap:12px 24px}
.panel{margin:0;min-width:0;max-width:100%}
figcaption{font-weight:600;font-size:.95rem;margin:4px 0}
.chart{display:block;width:100%;height:auto}
.panel{flex:0 1 auto}
.wide{min-width:0}
.chart *{stroke-linejoin:round;pointer-events:none}
.chart .point,.chart .point *{pointer-events:auto}
.point{cursor:pointer}
.point:hover{opacity:.5}
.narrow{display:none}
.scroll{overflow:auto;max-width:100%;max-height:70vh;margin:4px 0 10px}
table{border-collapse:separate;border-spacing:0;font-size:.85rem;line-height:19px}
th,td{padding:4px 8px;text-align:left;border-bottom:1px solid var(--grid);white-space:nowrap}
thead th{color:var(--muted);font-weight:600;border-bottom-color:var(--axis)}
tbody th{font-weight:400}
.n{text-align:right;font-variant-numeric:tabular-nums}
h3{font-size:.95rem;margin:10px 0 0}
summary{cursor:pointer;color:var(--ours);padding:4px 0;font-size:.9rem}
.hint{display:none}
footer{padding-bottom:24px}
@media (max-width:640px){
section{padding:12px 10px;border-radius:8px}
.wide{display:none}
.narrow{display:block}
th,td{padding:4px 6px;white-space:normal;vertical-align:bottom}
tbody th,thead th:first-child{position:sticky;left:0;background:var(--surface);min-width:100px}
.hint{display:block}
}
@media print{section{break-inside:avoid}}
"""


def css() -> str:
    """The whole sheet."""
    light, dark = variables(False), variables(True)
    return (f":root{{color-scheme:light dark;{light}}}\n"
            f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}{_RULES}")
