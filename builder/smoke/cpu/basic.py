"""The kinds of checks that run code of the image."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from builder.errors import InvalidError
from builder.model.check import Check
from builder.smoke.probes.allreduce import mapped
from builder.smoke.static.run import Failed, invalid_args
from builder.versions import nccl_version, same_nccl


@dataclass(frozen=True)
class Job:
    """What a check runs: Python `code`, or `argv`. judge: given the exit status and output, says what was found.

    alone: the code gets an interpreter of its own. timeout: seconds. apart: judges the output without what was written
    to standard error, which it is handed as well. quiet: its log is not looked at for warnings, since it must fail.
    """

    check: Check
    judge: Callable[[int, str], str]
    code: str = ""
    argv: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    user: str = ""
    python: str = "python3"
    alone: bool = False
    timeout: float = 900.0
    apart: Callable[[int, str, str], str] | None = None
    quiet: bool = False

    @property
    def process(self) -> tuple[object, ...]:
        """Python jobs with the same value can share an interpreter."""
        return (self.check.id if self.alone or self.argv else "", self.python, self.user, self.env)


KINDS: dict[str, Callable[..., dict[str, Any]]] = {}
"""Functions of a check's own arguments; they return the members of a Job."""


def kind(name: str) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., dict[str, Any]]]:
    """Register a kind of check."""

    def register(function: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        from pydantic import ConfigDict, validate_call

        KINDS[name] = validate_call(config=ConfigDict(strict=True))(function)
        return function

    return register


def job(check: Check, start: Sequence[str] = ()) -> Job:
    """What a check runs. start: what a container of the image starts, entrypoint and command.

    Raises InvalidError when it does not exist or has wrong arguments.

    Arguments of every kind: timeout (seconds), env, user ("UID[:GID]"), python (interpreter), alone.
    """
    from pydantic import TypeAdapter, ValidationError

    types = {"timeout": float, "env": dict[str, str], "user": str, "python": str, "alone": bool}
    args = {
        name.replace("-", "_"): tuple(value) if isinstance(value, list) else value for name, value in check.args.items()
    }
    # Other modules register kinds of their own.
    from builder.smoke.cpu import commands, media, serving  # noqa: F401

    if check.kind == "fails-without-gpu":
        args.setdefault("argv", tuple(start))
    if check.kind not in KINDS:
        raise InvalidError(
            f"check {check.id}: no cpu check {check.kind!r}", next=f"there are: {', '.join(sorted(KINDS))}"
        )
    try:
        common: dict[str, Any] = {
            name: TypeAdapter(types[name]).validate_python(args.pop(name)) for name in types if name in args
        }
        if isinstance(common.get("env"), Mapping):
            common["env"] = tuple(sorted(common["env"].items()))
        return Job(check=check, **{**KINDS[check.kind](**args), **common})
    except ValidationError as error:
        raise invalid_args(check, error) from error


@kind("python")
def python(*, code: str, output: str | None = None, matches: str | None = None) -> dict[str, Any]:
    """Python code runs without an exception; it prints exactly `output`, or something that `matches` is found in."""
    return {"code": code, "judge": _prints(output, matches)}


@kind("import")
def import_(*, module: str, version: str | None = None) -> dict[str, Any]:
    """A module can be imported; its `__version__` is this."""
    code = f"import importlib\nprint(getattr(importlib.import_module({module!r}), '__version__', 'imported'))"
    return {"code": code, "judge": last_line_is(version)}


@kind("command")
def command(
    *, argv: Sequence[str], output: str | None = None, matches: str | None = None, status: int = 0
) -> dict[str, Any]:
    """A command ends with this exit status and prints exactly `output`, or something that `matches` is found in."""
    return {"argv": tuple(argv), "judge": _prints(output, matches, status)}


_MAPPED = f"import ctypes, torch\n{inspect.getsource(mapped)}print(mapped())\n"


@kind("nccl-mapped")
def nccl_mapped(*, under: str = "/opt/nccl", version: str | None = None) -> dict[str, Any]:
    """After `import torch`, the one libnccl in memory is a file below `under`, and says it is this version.

    torch.cuda.nccl.version() is what torch was compiled with; only ncclGetVersion of the mapped file tells.
    """

    def judge(status: int, output: str) -> str:
        _ended(status, output)
        found: dict[str, int] = _literal(output.strip().rpartition("\n")[2])
        said = {path: nccl_version(number) for path, number in found.items()}
        text = ", ".join(f"{path} ({name})" for path, name in said.items()) or "none"
        if len(said) != 1 or not next(iter(said)).startswith(under.rstrip("/") + "/"):
            raise Failed(f"libnccl in memory: {text}; expected one below {under}")
        if version is not None and not same_nccl(next(iter(said.values())), version):
            raise Failed(f"libnccl in memory: {text}; expected version {version}")
        return text

    return {"code": _MAPPED, "judge": judge}


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except SyntaxError as error:
        raise ValueError(f"it prints {text[-500:]!r}, which is no result") from error


_ASSEMBLES = """
import os, subprocess, tempfile
path = {path!r}
if path is None:
    from triton.backends.nvidia import compiler
    try:
        tool = compiler.get_ptxas(121)
    except TypeError:
        tool = compiler.get_ptxas()
    path = getattr(tool, "path", None) or tool[0]
with tempfile.TemporaryDirectory() as folder:
    source, target = os.path.join(folder, "a.ptx"), os.path.join(folder, "a.cubin")
    with open(source, "w") as file:
        file.write(".version 8.8\\n.target {arch}\\n.address_size 64\\n.visible .entry kernel()\\n{{\\n ret;\\n}}\\n")
    subprocess.run([path, "-arch={arch}", source, "-o", target], check=True)
    with open(target, "rb") as file:
        head = file.read(64)
    assert head[:4] == b"\\x7fELF" and head[18] == 190, "what it made is no cubin"
    # The second byte of the flags since ABI version 8 (from 12.9 on, for targets that are new there), else the first.
    number = head[49] if head[8] >= 8 else head[48]
    assert number == {number}, "asked for {arch}, it made code for sm_%d" % number
print(path)
"""


@kind("ptxas-assembles")
def ptxas_assembles(*, arch: str = "sm_121a", path: str | None = None) -> dict[str, Any]:
    """The ptxas that Triton calls for compute capability 12.1 (or the one at `path`) assembles a kernel for `arch`.

    What it makes must be for `arch` too: wrappers exist that assemble for an older one instead.
    """
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if not match:
        raise InvalidError(f"not an architecture: {arch}")
    return {"code": _ASSEMBLES.format(path=path, arch=arch, number=int(match[1])), "judge": last_line_is(None)}


def _ended(status: int, output: str, wanted: int = 0) -> None:
    if status != wanted:
        tail = output.strip()[-1500:]
        raise Failed(f"exit status {status}{f', not {wanted}' if wanted else ''}" + (f": {tail}" if tail else ""))


def _prints(output: str | None, matches: str | None, status: int = 0) -> Callable[[int, str], str]:
    def judge(code: int, printed: str) -> str:
        _ended(code, printed, status)
        text = printed.strip()
        if output is not None and text != output.strip():
            raise Failed(f"it prints {text[-500:]!r}, expected {output.strip()!r}")
        if matches is not None:
            found = re.search(matches, text)
            if not found:
                raise Failed(f"it prints {text[-500:]!r}, in which there is no {matches!r}")
            return found[0][:200]
        return text.rpartition("\n")[2][:200]

    return judge


def last_line_is(wanted: str | None) -> Callable[[int, str], str]:
    """Judges that the command succeeded, and that its last line is this, or anything."""

    def judge(code: int, printed: str) -> str:
        _ended(code, printed)
        line = printed.strip().rpartition("\n")[2]
        if wanted is not None and line != wanted:
            raise Failed(f"it is {line}, expected {wanted}")
        return line[:200]

    return judge
