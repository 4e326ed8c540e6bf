"""The results of an image as an HTML page: one file without scripts or external resources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from builder.smoke.elf.fatbin import describe
from builder.smoke.report import Report, Result, Status
from builder.text import printable

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;background:#fff}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}code,td.id{font-family:ui-monospace,monospace;font-size:.9em}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;
border-bottom:1px solid #ddd}td.found{white-space:pre-wrap;overflow-wrap:anywhere}
.pass{color:#176b2c}.fail{color:#b3161b;font-weight:bold}.warn,.not-run{color:#8a5a00}@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}
th,td{border-color:#444}.pass{color:#6fcf85}.fail{color:#ff7b7b}.warn,.not-run{color:#e6b450}}
""".strip()
_ORDER: dict[Status, int] = {"fail": 0, "warn": 1, "not-run": 2, "pass": 3}
_TIERS = {"static": "without running it", "cpu": "run on a CPU", "gpu": "run on a GPU"}


def as_html(report: Report, title: str = "") -> str:
    """The HTML document. title: the image's name."""
    name = title or "image"
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{_text(name)}: smoke checks</title>",
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>Smoke checks of {_text(name)}</h1>",
        f"<p><code>{_text(report.digest)}</code></p>",
        f'<p class="{"pass" if report.ok() else "fail"}">{_text(report.summary().partition(": sha256:")[0])}</p>',
    ]
    for tier in dict.fromkeys(result.tier for result in report.results):
        lines += _tier(tier, [result for result in report.results if result.tier == tier])
    lines += [f"<p>{_text(note)}</p>" for note in report.notes]
    for result in report.results:
        if result.kind == "gpu-code" and result.details:
            lines += _inventory(result.details)
    return "\n".join([*lines, "</body></html>", ""])


def _tier(tier: str, results: list[Result]) -> Iterator[str]:
    yield f"<h2>{_text(tier)} <small>({_text(_TIERS.get(tier, ''))})</small></h2>"
    yield "<table><thead><tr><th>check</th><th>result</th><th>time</th><th>found</th></tr></thead><tbody>"
    # Failures come first.
    for result in sorted(results, key=lambda result: _ORDER[result.status]):
        time = f"{result.seconds:.1f} s" if result.seconds >= 0.05 else ""
        yield (
            f'<tr><td class="id">{_text(result.id)}</td><td class="{result.status}">'
            f"{result.status.replace('-', ' ')}</td><td>{time}</td>"
            f'<td class="found">{_text(result.message)}</td></tr>'
        )
    yield "</tbody></table>"


def _inventory(libraries: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield "<h2>GPU code</h2>"
    yield "<table><thead><tr><th>library</th><th>a GB10 runs</th><th>targets</th></tr></thead><tbody>"
    for item in libraries:
        runs = item["runs"] or "none of it"
        yield (
            f'<tr><td class="id">{_text(item["path"])}</td><td>{_text(runs)}</td>'
            f"<td>{_text(describe(item['code']))}</td></tr>"
        )
    yield "</tbody></table>"


def _text(text: str) -> str:
    return escape(printable(text))
