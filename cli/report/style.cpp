// cli/report/style.cpp -- The style sheet of the page: two schemes, one column on small screens.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/page.h"

namespace vitune {
namespace {

constexpr const char* kRules = R"~~(
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,-apple-system,
"Segoe UI",Roboto,"DejaVu Sans",sans-serif;overflow-wrap:break-word}
header,main,footer{max-width:1200px;margin:0 auto;padding:0 16px}
h1{font-size:clamp(1.5rem,5vw,2.1rem);line-height:1.2;margin:32px 0 4px;letter-spacing:-.01em}
h2{font-size:1.3rem;line-height:1.3;margin:0 0 6px}
.subtitle,.caption,.note{color:var(--muted)}
.subtitle{margin:0 0 20px}
.caption{margin:0 0 10px;max-width:78ch}
.note{font-size:.875rem;margin:6px 0 14px;max-width:90ch}
.missing{border-left:3px solid var(--loss);padding:2px 0 2px 12px;margin:8px 0;max-width:90ch}
section{background:var(--surface);border:1px solid var(--grid);border-radius:12px;
padding:20px;margin:20px 0;min-width:0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:0}
.tiles div{background:var(--surface);border:1px solid var(--grid);border-radius:12px;
padding:12px 16px;display:flex;flex-direction:column-reverse;justify-content:flex-end}
.tiles dt{color:var(--muted);font-size:.85rem;line-height:1.35}
.tiles dd{margin:0;font-size:1.6rem;font-weight:650;font-variant-numeric:tabular-nums}
nav{display:flex;flex-wrap:wrap;gap:4px 18px;margin:18px 0 0;font-size:.9rem}
a{color:var(--ours)}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;margin:8px 0;padding:0;
font-size:.875rem}
.legend li{display:flex;align-items:center;gap:6px}
.panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));
gap:16px 20px}
.panel{margin:0;min-width:0}
.panel.broad{grid-column:1/-1}
figcaption{font-weight:600;font-size:.95rem;margin:6px 0 2px}
.chart{display:block;width:100%;height:auto;color:var(--ink)}
.chart text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.narrow{display:none}
.chart *{pointer-events:none}
.chart .point,.chart .point *{pointer-events:auto}
.point{cursor:pointer}
.point:hover use{opacity:.25;color:var(--ink)}
.scroll{overflow-x:auto;max-width:100%;margin:4px 0 10px}
table{border-collapse:separate;border-spacing:0;font-size:.85rem;line-height:19px;min-width:60%}
h3{font-size:.95rem;line-height:1.4;margin:14px 0 0}
th,td{padding:4px 8px;text-align:left;border-bottom:1px solid var(--grid);white-space:nowrap}
thead th{color:var(--muted);font-weight:600;border-bottom-color:var(--axis)}
tbody th{font-weight:400}
.n{text-align:right}
td.n{text-align:right;font-variant-numeric:tabular-nums}
summary{cursor:pointer;color:var(--ours);padding:6px 0;font-size:.9rem}
details{margin-top:8px}
details .scroll{max-height:70vh;overflow-y:auto}
footer{padding-bottom:40px}
@media (max-width:640px){
section{padding:14px 10px;border-radius:8px}
.wide{display:none}
.narrow{display:block}
th,td{padding:4px 6px}
thead th{white-space:normal;vertical-align:bottom}
tbody th{white-space:normal;min-width:110px}
tbody th,thead th:first-child{position:sticky;left:0;background:var(--surface)}
}
@media print{section{break-inside:avoid}}
)~~";

}  // namespace

std::string page_css() {
  return ":root{color-scheme:light dark;--page:#f6f8fa;" + paint_css(false) +
         "}\n@media (prefers-color-scheme:dark){:root{--page:#0d1117;" + paint_css(true) + "}}" +
         kRules;
}

}  // namespace vitune
