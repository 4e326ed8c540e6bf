"""The cpu checks `python`, `import` and `command`: code, an import or a command that a recipe or layer names."""

from __future__ import annotations

from collections.abc import Sequence

from builder.model.check import Check
from builder.smoke.check import check_kind
from builder.smoke.cpu.execution import Execution, last_line_is, output_is


@check_kind("cpu", "python")
def python(check: Check, *, code: str, output: str | None = None, matches: str | None = None) -> Execution:
    """Python code ends without an exception; its output ends with `output`, or the pattern `matches` is in it.

    Libraries print warnings before the result: PyTorch does under qemu, about the processor.
    """
    return Execution(check, output_is(output, matches, whole=False), code=code)


@check_kind("cpu", "import")
def import_(check: Check, *, module: str, version: str | None = None) -> Execution:
    """A module can be imported, and its `__version__` is `version`."""
    code = f"import importlib\nprint(getattr(importlib.import_module({module!r}), '__version__', 'imported'))"
    return Execution(check, last_line_is(version), code=code)


@check_kind("cpu", "command")
def command(
    check: Check,
    *,
    argv: Sequence[str],
    output: str | None = None,
    matches: str | None = None,
    status: int = 0,
) -> Execution:
    """A command ends with this exit status; its output is exactly `output`, or the pattern `matches` is in it."""
    return Execution(check, output_is(output, matches, status), argv=tuple(argv))
