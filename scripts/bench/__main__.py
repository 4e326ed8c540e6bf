"""Measures `builder` against what people would use instead, on the same inputs in the same run.

    python scripts/bench [CASE...] [--runs N] [--out FOLDER]

Writes speed.md, speed.json and a picture of each curve to FOLDER (default: docs), where the results of other cases
stay. Downloads are kept, all else is removed. Exit status 1 when a target is missed, 0 otherwise. A case whose peers
are not on this machine is left out, and said so. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from commands import recipes, start
from compilers import nccl, nccl_all
from cores import cores
from layers import layers
from measure import Failed, Row
from place import ROOT, Place, remove
from report import Run, machine, write
from stack import stack
from transfer import transfer
from variable import variable

CASES: dict[str, Callable[[Place], Iterator[Row]]] = {
    "start": start,
    "recipes": recipes,
    "layers": layers,
    "stack": stack,
    "cores": cores,
    "transfer": transfer,
    "variable": variable,
    "nccl": nccl,
    "nccl-all": nccl_all,
}
SLOW = {"nccl-all"}
"""Only when they are named."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help=f"default: all but {', '.join(SLOW)}; {', '.join(CASES)}"
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each side; default: 3")
    parser.add_argument(
        "--base", default="hermetic-0.20", help="the base of the measured stack; default: hermetic-0.20"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs", metavar="FOLDER", help="default: docs")
    arguments = parser.parse_args()
    if unknown := [case for case in arguments.cases if case not in CASES]:
        parser.error(f"there is no case {unknown[0]}")
    cases = arguments.cases or [case for case in CASES if case not in SLOW]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "builder-tests"
    runs = f" --runs {arguments.runs}" if arguments.runs != 3 else ""
    missed = False
    for case in cases:
        place = Place(cache / "bench", cache / "inputs", max(arguments.runs, 1), arguments.base)
        remove(place.folder)
        place.folder.mkdir(parents=True)
        rows: list[Row] = []
        try:
            for row in CASES[case](place):
                rows.append(row)
                missed |= row.holds is False
                print(f"{row.work}: {row.seconds:.2f} s" + (f", {row.ratio:.2f} x {row.peer}" if row.ratio else ""))
        except Failed as error:
            print(f"bench: {case} failed: {error}", file=sys.stderr)
            return 1
        except OSError as error:
            print(f"bench: {case} is left out: {error}", file=sys.stderr)
        else:
            write([Run(case, machine(), f"python scripts/bench {case}{runs}", rows)], arguments.out)
        finally:
            remove(place.folder)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
