"""The look of pages that must stand alone: inline CSS, light and dark, down to a phone's width. Colours after Okabe and Ito."""

from __future__ import annotations

CSS = """
:root{--floor:#f1ede3;--wall:#8d867a;--door:#d6b98a;--road:#dcd8ce;--paper:#fbfaf7;--ink:#22211f;--soft:#6b675f;--rule:#dedad1;--card:#fff;--heat:#0072b2;--good:#00674c;--bad:#a33b00;
--s0:#6b675f;--s1:#0072b2;--s2:#b06d00;--s3:#00805f;--s4:#9c4f80;--s5:#a33b00}
@media (prefers-color-scheme:dark){:root{--floor:#26272a;--wall:#5b5750;--door:#7d6744;--road:#2f3033;
--paper:#191a1c;--ink:#ecebe8;--soft:#a19d95;--rule:#37383b;--card:#212225;
--heat:#6cc1f5;--good:#3fc79b;--bad:#f08a4b;--s0:#a19d95;--s1:#6cc1f5;--s2:#e8ad3d;--s3:#3fc79b;--s4:#dd9cc4;--s5:#f08a4b}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1120px;padding:24px 20px 64px;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:1.9rem;line-height:1.2;margin:.2em 0 .1em}h2{font-size:1.25rem;margin:2.2em 0 .6em}
p{max-width:70ch}.lead{font-size:1.08rem}.soft,small{color:var(--soft)}small{font-weight:400}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--rule);border-radius:8px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.5em .75em;text-align:right;white-space:nowrap;border-bottom:1px solid var(--rule)}
th{font-weight:600;font-size:.85rem}th small,td small{display:block;font-size:.75rem}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--card)}
tr:last-child td{border-bottom:0}
.effect{font-size:.8rem;color:var(--soft)}td.good .effect{color:var(--good)}td.bad .effect{color:var(--bad)}
.grid2{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,330px),1fr));gap:16px}
figure{margin:0;padding:12px;background:var(--card);border:1px solid var(--rule);border-radius:8px;min-width:0}
figcaption{font-weight:600;font-size:.92rem}.key{display:flex;flex-wrap:wrap;gap:.2em 1em;font-size:.8rem}
.key i{display:inline-block;width:.8em;height:.8em;border-radius:50%;margin-right:.35em}
svg{display:block;width:100%;height:auto}
svg .grid{stroke:var(--rule);stroke-width:1}svg .level{stroke:var(--soft);stroke-dasharray:4 4}
svg text{fill:var(--soft);font:11px system-ui,sans-serif}svg text.name{fill:var(--ink);font-size:12px}
svg .line{fill:none;stroke-width:1.8;stroke-linejoin:round}svg .whisker{stroke-width:2.5;stroke-linecap:round}
svg .heat{fill:var(--heat)}
.s0.line,.s0.whisker{stroke:var(--s0)}.s0.dot,.key .s0{fill:var(--s0);background:var(--s0)}
.s1.line,.s1.whisker{stroke:var(--s1)}.s1.dot,.key .s1{fill:var(--s1);background:var(--s1)}
.s2.line,.s2.whisker{stroke:var(--s2)}.s2.dot,.key .s2{fill:var(--s2);background:var(--s2)}
.s3.line,.s3.whisker{stroke:var(--s3)}.s3.dot,.key .s3{fill:var(--s3);background:var(--s3)}
.s4.line,.s4.whisker{stroke:var(--s4)}.s4.dot,.key .s4{fill:var(--s4);background:var(--s4)}
.s5.line,.s5.whisker{stroke:var(--s5)}.s5.dot,.key .s5{fill:var(--s5);background:var(--s5)}
svg.map{max-width:760px;margin:.5em 0}.t-floor{fill:var(--floor)}.t-wall{fill:var(--wall)}.t-door{fill:var(--door)}
.t-road{fill:var(--road)}.t-object{fill:var(--floor)}
.thing rect{fill:var(--card);stroke:var(--soft)}.thing.busy rect{stroke:var(--s5);stroke-width:2.5}
.thing text{fill:var(--ink)}.resident circle{fill:var(--s1);stroke:var(--card);stroke-width:1.5}
.resident.good circle{stroke:var(--good)}.resident.fair circle{stroke:var(--s2)}.resident.bad circle{stroke:var(--bad)}
.resident circle{stroke-width:3}svg .wait{stroke:var(--s4);stroke-width:2;stroke-dasharray:4 3}
.resident text{fill:var(--card);font-weight:700}
pre{overflow-x:auto;padding:12px 14px;background:var(--card);border:1px solid var(--rule);border-radius:8px;
font-size:.85rem;line-height:1.45}
details{margin:.6em 0}summary{cursor:pointer;font-weight:600}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2em 1.2em;margin:0}dt{color:var(--soft)}
dd{margin:0;font-family:ui-monospace,monospace;font-size:.85rem;overflow-wrap:anywhere}
@media (max-width:520px){body{padding:16px 12px 48px}h1{font-size:1.5rem}dl{grid-template-columns:1fr}dd{margin-bottom:.5em}}
"""


def page(title: str, body: str) -> str:
    """One HTML document that asks for nothing from anywhere."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
        f"<title>{title}</title><style>{CSS}</style></head><body>{body}</body></html>\n"
    )
