"""The outcome of `builder verify`: printed part by part, and as one verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from builder.cli.output import counted, print_json, print_line, say
from builder.errors import DiffersError
from builder.text import one_line
from builder.verify.compare import Compared


def verdict_on(compared: Sequence[Compared], said: Sequence[Compared], where: str) -> str:
    """Print the outcome of each part; the verdict on the image. said: of SBOMs and provenance.

    Raises DiffersError when nothing was compared.
    """
    for item in (*compared, *said):
        digest = item.expected[:19] if item.expected is not None else ""
        detail = f"  {item.detail}" if item.detail else ""
        say(one_line(f"  {item.part:24} {item.outcome:17}  {digest}{detail}"), status=item.outcome, hang=4)
        for line in item.files:
            say(one_line(f"    {line}"), hang=6)
        if item.cause:
            say(one_line(f"    likely cause: {item.cause}"), hang=6)
    done = sum(item.outcome != "not compared" for item in compared)
    say(f"compared {done} of {counted(len(compared), 'part')}")
    if not done:
        raise DiffersError("nothing was compared", id="verify-compared-nothing", where=where)
    outcomes = {item.outcome for item in compared}
    if "differs" in outcomes:
        return "differs"
    if "content identical" in outcomes:
        return "content identical"
    return "identical" if done == len(compared) else "identical as far as compared"


def conclude(
    about: Mapping[str, Any],
    verdict: str,
    compared: Sequence[Compared],
    said: Sequence[Compared],
    *,
    where: str,
    json: bool,
) -> None:
    """Print the verdict. about: further members of the JSON. Raises DiffersError.

    An identical image about which something wrong is said has the verdict `statements differ`.
    """
    if verdict.startswith("identical") and any(item.outcome == "differs" for item in said):
        verdict = "statements differ"
    if json:
        print_json({**about, "verdict": verdict, "parts": [asdict(item) for item in (*compared, *said)]})
    else:
        print_line(verdict, status=verdict)
    wrong = [item for item in (*compared, *said) if item.outcome in ("differs", "content identical")]
    if wrong:
        raise DiffersError(
            f"{counted(len(wrong), 'part')} of the image or of what is said about it differ from what the plan makes",
            id="verify-differs",
            where=where,
            cause=f"{wrong[0].part}: {wrong[0].cause or wrong[0].detail or 'its digest'}",
        )
