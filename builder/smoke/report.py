"""The results of an image's checks: as JSON, as JUnit XML and as a table."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass, field
from typing import Any, Literal
from xml.etree import ElementTree

from builder.digest import Digest
from builder.text import printable

Status = Literal["pass", "warn", "fail", "not-run"]
"""warn: a problem that does not fail the image."""

_NARROW = 100
"""Columns below which a finding does not fit beside the name of its check."""


@dataclass(frozen=True)
class Result:
    """The result of one check. message: the finding, or why the check was not run. seconds: wall time.

    details: the finding as JSON, for --json and the HTML page.
    """

    id: str
    kind: str
    tier: str
    status: Status
    message: str = ""
    seconds: float = 0.0
    details: Any = None

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        found = asdict(self)
        return found if self.details is not None else {k: v for k, v in found.items() if k != "details"}


@dataclass
class Report:
    """The results of an image. digest: of its manifest. notes: how the image was run."""

    digest: Digest
    results: list[Result] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Add another tier's results of the same image."""
        self.results += other.results
        self.notes += other.notes

    def count(self, status: Status) -> int:
        """How many results have this status."""
        return sum(result.status == status for result in self.results)

    def ok(self, *, require: bool = False) -> bool:
        """Whether no check failed; with `require`, whether every check was run, too."""
        return not self.count("fail") and not (require and self.count("not-run"))

    def summary(self) -> str:
        """One line: counts and digest."""
        counts = f"{self.count('pass')} passed, {self.count('fail')} failed, {self.count('not-run')} not run"
        warned = f", {self.count('warn')} with a warning" if self.count("warn") else ""
        return f"{counts}{warned}: {self.digest}"

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        names: dict[str, Status] = {"passed": "pass", "warned": "warn", "failed": "fail", "not_run": "not-run"}
        counts = {name: self.count(status) for name, status in names.items()}
        return {
            "digest": self.digest,
            "ok": self.ok(),
            **counts,
            "results": [result.as_dict() for result in self.results],
            "notes": list(self.notes),
        }

    def as_junit(self) -> str:
        """JUnit XML: one suite per tier, named after the tier and the image's digest."""
        root = ElementTree.Element("testsuites")
        for tier in dict.fromkeys(result.tier for result in self.results):
            results = [result for result in self.results if result.tier == tier]
            suite = ElementTree.SubElement(
                root,
                "testsuite",
                name=f"{tier} {self.digest}",
                tests=str(len(results)),
                failures=str(sum(result.status == "fail" for result in results)),
                skipped=str(sum(result.status == "not-run" for result in results)),
                time=f"{sum(result.seconds for result in results):.3f}",
            )
            for result in results:
                case = ElementTree.SubElement(
                    suite, "testcase", classname=f"{tier}.{result.kind}", name=result.id, time=f"{result.seconds:.3f}"
                )
                message = printable(result.message)
                if result.status == "fail":
                    ElementTree.SubElement(case, "failure", message=message.partition("\n")[0]).text = message
                elif result.status == "not-run":
                    ElementTree.SubElement(case, "skipped", message=message)
                elif result.status == "warn":
                    ElementTree.SubElement(case, "system-out").text = f"warning: {message}"
        ElementTree.indent(root)
        return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"

    def as_table(self, *, width: int | None = None, color: bool = False) -> str:
        """A table for a terminal, or a list for a narrow one. width: in columns; None: rich detects it."""
        from rich.console import Console
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        out = io.StringIO()
        console = Console(file=out, width=width, force_terminal=color, no_color=not color)
        styles = {"pass": "green", "warn": "yellow", "fail": "bold red", "not-run": "yellow"}
        table = Table(box=None, pad_edge=False)
        for title in ("check", "tier", "result", "time"):
            table.add_column(title, no_wrap=True)
        table.add_column("found", overflow="fold")
        for result in self.results:
            time = f"{result.seconds:.1f} s" if result.seconds >= 0.05 else ""
            # Text, not markup: messages contain output of the image.
            status = Text(result.status.replace("-", " "), style=styles[result.status])
            message = Text(printable(result.message))
            if console.width < _NARROW:
                status.pad_right(7 - len(status))
                console.print(Text.assemble(status, f"  {result.tier:6}  {result.id}"))
                if result.message:
                    console.print(Padding(message, (0, 0, 0, 4)))
            else:
                table.add_row(Text(result.id), result.tier, status, time, message)
        if table.row_count:
            console.print(table)
        for note in self.notes:
            console.print(Text(printable(note)))
        console.print(Text(self.summary()))
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
