"""Rebuilds layers once under each variation, each time in a process of its own, and compares them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import builder
from builder.digest import Digest
from builder.engine.process import PATIENCE, capture, run
from builder.engine.select import select_engine
from builder.errors import EngineError
from builder.model.plan import Plan
from builder.plan.bundle import write_bundle
from builder.produce.survey import survey
from builder.smoke.image.opened import LayerBlob
from builder.store.removal import remove
from builder.store.store import Store
from builder.verify.files import differing_files, read_layer
from builder.verify.rebuild import link_input
from builder.verify.vary.clock import NOT_SET, environment, library
from builder.verify.vary.kinds import AGAIN, OTHER_ENGINE, Variation, reached
from builder.verify.vary.worker import Request

Outcome = Literal["identical", "differs", "not varied"]

_CANNOT = ("engine-missing", "disk-space-short", "vary-clock", "vary-clock-library", "toolchain-missing")
"""Errors of a machine that cannot be varied so, and not of the build."""
_FILES = 20


@dataclass(frozen=True)
class Changed:
    """A layer that a variation changes, to this digest. files: the first that differ. cause: what is known of why."""

    layer: str
    files: tuple[str, ...]
    digest: Digest
    cause: str = ""


@dataclass(frozen=True)
class Varied:
    """The result of one variation. reason: why it could not be had, or how the build failed. layers: those rebuilt."""

    variation: str
    outcome: Outcome
    layers: tuple[str, ...] = ()
    changed: tuple[Changed, ...] = ()
    reason: str = ""
    seconds: float = 0.0

    @property
    def changed_layers(self) -> tuple[str, ...]:
        """The layers that are not the same under it: all of them when the build fails."""
        named = tuple(item.layer for item in self.changed)
        return named or (self.layers if self.outcome == "differs" else ())


class _CannotError(Exception):
    """This machine cannot be varied so."""


class Variations:
    """Variations of one rebuild.

    plan, layers: what was rebuilt, by id. rebuilt: the blobs of the rebuild without a variation. engine: the name of
    the one that ran the steps. store: has all inputs.
    """

    def __init__(
        self,
        store: Store,
        plan: Plan,
        rebuilt: Mapping[str, LayerBlob],
        *,
        engine: str,
        builder: Sequence[str] | None,
        jobs: int | None,
        log: Callable[[str], None],
    ) -> None:
        self._store = store
        self._plan = plan
        self._rebuilt = rebuilt
        self._engine = engine
        self._builder = builder
        self._jobs = jobs
        self._log = log
        # Steps that read a base would need its layers on this machine.
        self._layers = [(item.id, item.producer) for item in plan.layers if item.id in rebuilt and not item.reads_base]

    def run(self, variations: Sequence[Variation]) -> Iterator[Varied]:
        """The results, one after the other. A layer that AGAIN changes is left out of the variations after it."""
        restless: set[str] = set()
        self._work = self._store.scratch()
        try:
            for variation in variations:
                layers = [name for name in reached(variation, self._layers, self._engine) if name not in restless]
                start = time.monotonic()
                result = self._vary(variation, layers)
                if variation == AGAIN:
                    restless = {item.layer for item in result.changed}
                    result = replace(result, changed=tuple(self._explained(item) for item in result.changed))
                yield replace(result, seconds=round(time.monotonic() - start, 1))
        finally:
            remove(self._work)

    def _vary(self, variation: Variation, layers: list[str]) -> Varied:
        if not layers:
            return Varied(variation.name, "not varied", reason="it reaches none of the layers that are compared")
        try:
            with self._folder() as folder:
                made = self._build(variation, layers, folder)
                differ = [name for name in layers if made[name]["digest"] != self._rebuilt[name].digest]
                changed = tuple(self._changed(name, made[name], folder / "out") for name in differ)
        except _CannotError as error:
            return Varied(variation.name, "not varied", reason=str(error))
        except EngineError as error:
            return Varied(variation.name, "differs", tuple(layers), reason=f"the build fails: {error.what}")
        return Varied(variation.name, "differs" if changed else "identical", tuple(layers), changed)

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Path]:
        """An empty folder, always the same: its path must not vary."""
        folder = self._work / "vary"
        folder.mkdir()
        try:
            yield folder
        finally:
            remove(folder)

    def _changed(self, name: str, made: Mapping[str, Any], out: Path) -> Changed:
        digest = Digest(made["digest"])
        blob = LayerBlob(digest, made["size"], out / digest.hex, diff_id=made["diff_id"])
        files = list(differing_files(read_layer(self._rebuilt[name]), read_layer(blob)))
        return Changed(name, tuple(map(str, files[:_FILES])), digest=digest)

    def _explained(self, changed: Changed) -> Changed:
        """Why a layer differs although nothing was varied: the folder did, or the clock went on, or neither."""
        if self._digest(AGAIN, changed.layer) == changed.digest:
            return replace(changed, cause="folder: in one and the same folder it does not change")
        still = Variation("time", "stands still", clock="2011-10-09 08:07:06")
        if (changed.layer, "dockerfile") in self._layers:
            first, second = (self._digest(still, changed.layer) for _ in range(2))
            if first is not None and first == second:
                return replace(changed, cause="time: with a clock that stands still it does not change")
        return replace(changed, cause="a random number, a process id, or the order of threads")

    def _digest(self, variation: Variation, layer: str) -> Digest | None:
        try:
            with self._folder() as folder:
                return Digest(self._build(variation, [layer], folder)[layer]["digest"])
        except (_CannotError, EngineError):
            return None

    def _build(self, variation: Variation, layers: list[str], folder: Path) -> dict[str, dict[str, Any]]:
        """Build in a process of its own; digest, size and diff_id of each layer. Other blobs are below folder/out.

        Raises _CannotError when the machine cannot be varied so, EngineError when the build fails.
        """
        root, out, bundle = folder / variation.folder / "store", folder / "out", folder / "bundle.json"
        out.mkdir()
        bundle.write_bytes(write_bundle(self._plan))
        root.mkdir(parents=True)
        engine = self._engine
        if variation.engine:
            engine = self._other_engine()
        memory = self._memory(layers, root) if variation.memory else None
        away = variation.mirror or variation.memory
        if not away:
            self._link_inputs(layers, root)
        request = Request(
            bundle=str(bundle),
            layers=layers,
            expected={name: self._rebuilt[name].digest for name in layers},
            root=str(root),
            out=str(out),
            engine=engine or None,
            builder=self._builder if engine == "docker" else None,
            jobs=variation.jobs or self._jobs,
            inputs=str(self._store.root) if away else None,
            memory=memory,
            umask=variation.umask,
            hostname=variation.hostname,
            cpus=variation.cpus,
            clock=variation.clock,
        )
        asked = folder / "request.json"
        asked.write_text(json.dumps(asdict(request)), "utf-8")
        # -P: a folder of the user named `builder` must not be imported. The package may not be installed.
        program = [sys.executable, "-P", "-m", "builder.verify.vary.worker", str(asked)]
        # It ends its engine first, which may take PATIENCE.
        wrapped, environ = [*_wrapped(variation), *program], _environment(variation)
        done = run(wrapped, log=self._log, env=environ, patience=2 * PATIENCE)
        try:
            result = json.loads((out / "result.json").read_bytes())
        except OSError:
            raise _CannotError(done.tail[-1] if done.tail else f"exit status {done.status}") from None
        if (error := result.get("error")) is not None:
            if error["id"] in _CANNOT:
                raise _CannotError(error["text"].splitlines()[0])
            if any(NOT_SET in line for line in (*done.tail, error["text"])):
                raise _CannotError("the clock of the steps cannot be set")
            raise EngineError(error["text"].splitlines()[0], id="vary-build-failed")
        found: dict[str, dict[str, Any]] = result["layers"]
        return found

    def _other_engine(self) -> str:
        name = OTHER_ENGINE[self._engine]
        try:
            select_engine(name)
        except EngineError as error:
            raise _CannotError(error.what) from None
        return name

    def _link_inputs(self, layers: Sequence[str], root: Path) -> None:
        fresh = Store(root)
        needs = survey(fresh, self._plan.only(layers))
        for item in {item.digest: item for layer in needs.layers for item in layer.inputs}.values():
            link_input(self._store, fresh, item)

    def _memory(self, layers: Sequence[str], root: Path) -> int:
        """Bytes for a file system in memory that holds a whole build."""
        needs = survey(Store(root), self._plan.only(layers))
        shutil.rmtree(root)
        wanted = 2 * (needs.download + needs.store + needs.temporary) + (64 << 20)
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), free)
        if wanted > free:
            raise _CannotError(f"it may need {wanted / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free")
        return wanted


def _wrapped(variation: Variation) -> list[str]:
    """The command that starts a process with this variation. Raises _CannotError when it does not work here."""
    wrap = list(variation.wrap)
    if os.geteuid() != 0 and wrap[:1] == ["unshare"] and "--user" not in wrap:
        wrap[1:1] = ["--user", "--map-root-user", "--map-auto"]
    if wrap:
        status, text = capture([*wrap, "true"])
        if status != 0:
            raise _CannotError(f"{wrap[0]}: {text.splitlines()[-1] if text else 'is not installed'}")
    return wrap


def _environment(variation: Variation) -> dict[str, str]:
    variables = {"PYTHONPATH": os.pathsep.join(_package_path()), **variation.environ}
    if variation.clock is not None:
        if library() is None:
            raise _CannotError("datefudge is not installed (apt-get install datefudge)")
        variables |= environment(variation.clock)
    if (name := variables.get("LC_ALL")) is not None:
        # -I: with -c alone, Python imports a locale.py of the current folder, which may be a stranger's.
        status, _ = capture([sys.executable, "-I", "-c", f"import locale; locale.setlocale(locale.LC_ALL, {name!r})"])
        if status != 0:
            raise _CannotError(f"this machine does not have the locale {name}")
    return variables


def _package_path() -> list[str]:
    """PYTHONPATH with the folder of this package, unless it is installed and so found without."""
    own = Path(builder.__file__).resolve().parents[1]
    known = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return known if own.name in ("site-packages", "dist-packages") else [str(own), *known]
