"""`builder fsck`: check the store."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from builder.cli.options import JsonOption
from builder.cli.output import counted, print_json, print_line, say, size
from builder.cli.request import open_store
from builder.errors import PinError
from builder.store.fsck import check


def fsck(
    repair: Annotated[
        bool, typer.Option("--repair", help="Delete what is damaged. A build fetches or builds it again.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Check every blob and record of the store. The exit status is 4 when one is damaged and stays.

    Builds find damage by themselves, where they use a file. This command reads everything, also what no build uses.
    Other builders may use the store meanwhile.
    """
    store = open_store()
    found = check(store, repair=repair)
    for fault in found.faults:
        say(f"{'removed' if repair else 'damaged'}: {fault.path}: {fault.problem}", hang=2)
    about = f"{counted(found.blobs, 'blob')} ({size(found.size)}), {counted(found.layers, 'layer')}"
    about += f", {counted(found.images, 'image')} at {store.root}"
    if found.faults and not repair:
        if json_:
            print_json({**asdict(found), "repaired": False})
        raise PinError(
            f"{counted(len(found.faults), 'file')} of the store {'is' if len(found.faults) == 1 else 'are'} damaged",
            id="store-damaged",
            where=str(store.root),
            cause=f"{found.faults[0].path}: {found.faults[0].problem}",
            next="builder fsck --repair",
        )
    if json_:
        print_json({**asdict(found), "repaired": bool(found.faults)})
    else:
        print_line(f"{about}: {f'{len(found.faults)} removed' if found.faults else 'clean'}", hang=2)
