"""`builder new base`: writes a hermetic base for a version of vLLM, and says what follows from its wheels."""

from __future__ import annotations

import re

from builder.atomic import write_file
from builder.cli.output import say, size
from builder.cli.recipe.schema import with_schema, write_schema
from builder.errors import UsageError
from builder.folders import own_root, shipped_root
from builder.lock.selection import alone
from builder.model.textfile import read_text
from builder.project import Project


def new_base(name: str, version: str | None) -> None:
    """Write the base, its lock sections and, where it is missing, its option table. Raises as `make_base` does."""
    if version is None or not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+(\.post[0-9]+)?", version):
        raise UsageError(
            "a base needs --vllm with a released version" if version is None else f"--vllm {version!r} is no release",
            id="new-base-version",
            next=f"builder new base {name} --vllm 0.32.0",
        )
    # Imported here: the package index and uv are needed for a base only.
    from builder.stack.compose import check_name, make_base

    own, shipped = own_root(), shipped_root()
    project = Project((own,) if own == shipped else (own, shipped))
    with alone(own, say):
        check_name(project, name)
        made = make_base(project, name, version, say)
        base, path = made.base, made.files[0]
        write_file(path, with_schema("base", own, path, read_text(path)).encode())
        write_schema("base", own)
    for path in made.files:
        print(path.relative_to(own))
    wheels = project.section(base.stack.wheels).entries if base.stack else ()
    count, total = len(wheels), sum(wheel.size for wheel in wheels)
    say(f"{count} wheels of {size(total)} in {len(base.layers) - 2} layers, above the root and the CUDA compiler")
    parts = (("torch", base.torch), ("Triton", base.triton), ("CUDA", base.cuda), ("Python", base.python))
    say(", ".join(f"{part} {known or 'not known'}" for part, known in (*parts, ("glibc", base.glibc))))
    linked = "its wheel, where the layer nccl places ours" if base.nccl == "wheel" else "not known where"
    say(f"torch loads NCCL from {linked}; test --tier static compares this with the library's DT_RPATH")
    for note in made.unknown:
        say(f"not known: {note}")
    say("not known: whether its kernels run on sm_121; builder test --tier gpu shows it on a Spark")
    say(f"next: builder new recipe MY-NAME --base {name} --model OWNER/NAME; builder build --recipe MY-NAME")
