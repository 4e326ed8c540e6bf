"""The cpu checks `fails-without-gpu`, `non-root` and `structure-command`."""

from __future__ import annotations

from collections.abc import Sequence

from builder.model.check import Check
from builder.pattern import compiled
from builder.smoke.check import CheckFailed, check_kind
from builder.smoke.cpu.execution import Execution, last_line_is
from builder.smoke.structure_format import SETUP_FAILED

NO_GPU = (
    r"Failed to infer device type|Found no NVIDIA driver|No CUDA GPUs are available|libcuda\.so\.1|"
    r"no NVIDIA GPU|CUDA driver initialization failed"
)
"""Messages of vLLM and torch on a machine without a GPU."""


@check_kind("cpu", "fails-without-gpu")
def fails_without_gpu(check: Check, *, argv: Sequence[str] = (), matches: str = NO_GPU) -> Execution:
    """The image's command (or `argv`) reports that there is no GPU and exits with an error.

    It must not hang, be ended by a signal, or exit with 0.
    """

    def judge(status: int, output: str) -> str:
        tail = output.strip()[-1500:]
        if status == 0:
            raise CheckFailed(f"it exits with 0 without a GPU: {tail}")
        if status >= 128 or status < 0:
            raise CheckFailed(f"a signal ended it (exit status {status}): {tail}")
        found = compiled(matches).search(output)
        if not found:
            raise CheckFailed(f"it does not report that there is no GPU (exit status {status}): {tail}")
        return f"exit status {status}: {found[0]}"

    if not argv:
        return Execution(check, last_line_is(None), code="raise SystemExit('neither entrypoint nor command')")
    return Execution(check, judge, argv=tuple(argv), quiet=True)


_NON_ROOT = """
import getpass, os, pathlib, tempfile
assert os.getuid() != 0, "this is root"
home = pathlib.Path(os.path.expanduser("~"))
for name in {folders!r}:
    folder = home / name / "probe"
    folder.mkdir(parents=True)
    (folder / "file").write_text("x")
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
user = getpass.getuser()
for module in {modules!r}:
    __import__(module)
print("as", os.getuid(), "called", user, "with its home in", home)
"""


@check_kind("cpu", "non-root")
def non_root(
    check: Check,
    *,
    modules: Sequence[str] = ("torch",),
    folders: Sequence[str] = (".cache", ".config", ".triton", ".nv"),
) -> Execution:
    """A user without an entry in passwd can write the caches of CUDA, Triton and FlashInfer, and import modules."""
    code = _NON_ROOT.format(folders=list(folders), modules=list(modules))
    return Execution(check, last_line_is(None), code=code, user="54321:54321")


@check_kind("cpu", "structure-command")
def structure_command(
    check: Check,
    *,
    argv: Sequence[str],
    expected_output: Sequence[str] = (),
    excluded_output: Sequence[str] = (),
    expected_error: Sequence[str] = (),
    excluded_error: Sequence[str] = (),
    status: int = 0,
) -> Execution:
    """A command test of container-structure-test: exit status, and patterns of standard output and standard error."""

    def judge(code: int, output: str, errors: str) -> str:
        if code == SETUP_FAILED and status != code:
            raise CheckFailed("a command of its setup failed")
        if code != status:
            raise CheckFailed(f"exit status {code}, not {status}: {(errors or output).strip()[-1500:]}")
        for what, text, wanted, unwanted in (
            ("output", output, expected_output, excluded_output),
            ("error", errors, expected_error, excluded_error),
        ):
            for each in wanted:
                if not compiled(each).search(text):
                    raise CheckFailed(f"the {what} does not match {each!r}: {text.strip()[-500:]!r}")
            for each in unwanted:
                if compiled(each).search(text):
                    raise CheckFailed(f"the {what} matches {each!r}: {text.strip()[-500:]!r}")
        return f"exit status {code}"

    return Execution(check, lambda code, output: "", argv=tuple(argv), judge_streams=judge, quiet=True)
