"""How a probe reports: one line of JSON after a marker, because libraries also print to standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

MARK = "@builder-probe "


class NotRun(Exception):
    """The image lacks what the probe needs; the text is the reason."""


def report(probe: Callable[[], dict[str, Any]]) -> None:
    """Run a probe and print its result. An exception becomes {"error": …}, NotRun {"not_run": reason}."""
    try:
        found = probe()
    except NotRun as reason:
        found = {"not_run": str(reason)}
    except Exception as error:
        import traceback

        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {error}"[:2000]}
    # A line of its own, whatever was printed before it.
    print(f"\n{MARK}{json.dumps(found)}", flush=True)
    sys.exit(0)
