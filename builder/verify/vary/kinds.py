"""The variations: in what one machine that builds may differ from another. A table, without effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from builder.errors import UsageError

OTHER_ENGINE = {"buildah": "docker", "docker": "buildah"}
_DEEP = "/".join(["another folder", "with a long path", *("deeper" for _ in range(12))])


@dataclass(frozen=True)
class Variation:
    """One difference from the machine as it is.

    group: the name for --vary. value: what it is changed to, for a person. environ: variables of the process. umask,
    hostname: of the process. cpus: processors that it may use. jobs: parallel jobs. clock: the date and time, in UTC.
    memory: everything is written to a file system in memory, which lists folders in another order. mirror: inputs come
    from a mirror, not from the store. folder: where everything is written, relative. engine: another one.
    wrap: the program, with its options, that starts the process. steps: whether it changes steps that docker runs.
    files: it can only be had for layers that are unpacked.
    """

    group: str
    value: str
    environ: dict[str, str] = field(default_factory=dict)
    umask: int | None = None
    hostname: str | None = None
    cpus: int | None = None
    jobs: int | None = None
    clock: str | None = None
    memory: bool = False
    mirror: bool = False
    folder: str = "run"
    engine: bool = False
    wrap: tuple[str, ...] = ()
    steps: bool = False
    files: bool = False

    @property
    def name(self) -> str:
        """Group and value."""
        return f"{self.group} {self.value}" if self.value else self.group


def _locale(name: str) -> Variation:
    return Variation("locale", name, {"LANG": name, "LC_ALL": name, "LANGUAGE": name.partition("_")[0]})


AGAIN = Variation("again", "", steps=True)
"""The same once more: a layer that then differs holds time, a process id, a random number or the order of threads."""

ALL = (
    AGAIN,
    Variation("time", "2001-02-03 04:05:06", clock="2001-02-03 04:05:06", steps=True),
    Variation("time", "2036-12-31 23:59:58", clock="2036-12-31 23:59:58", steps=True),
    Variation("zone", "Pacific/Kiritimati (UTC+14)", {"TZ": "<+14>-14"}),
    Variation("zone", "Etc/GMT+12 (UTC-12)", {"TZ": "<-12>12"}),
    Variation("zone", "America/St_Johns", {"TZ": "NST3:30NDT,M3.2.0,M11.1.0"}),
    _locale("C"),
    _locale("tr_TR.UTF-8"),
    _locale("de_DE.UTF-8"),
    Variation("user", "12345", wrap=("unshare", "--user", "--map-user=12345", "--map-group=12345"), files=True),
    Variation("umask", "000", umask=0o000),
    Variation("umask", "027", umask=0o027),
    Variation("umask", "077", umask=0o077),
    Variation("hostname", "another-host", hostname="another-host", wrap=("unshare", "--uts")),
    Variation("cpus", "1 processor", cpus=1),
    Variation("cpus", "1 job", jobs=1, steps=True),
    Variation("cpus", "7 jobs", jobs=7, steps=True),
    Variation("engine", "", engine=True, steps=True),
    Variation("order", "of a file system in memory", memory=True, wrap=("unshare", "--mount")),
    Variation("folder", "with a long path", folder=_DEEP),
    Variation("folder", "with a short path", folder="r"),
    Variation("mirrors", "inputs from a folder", mirror=True),
    Variation("network", "none", wrap=("unshare", "--net")),
    Variation(
        "environment",
        "other HOME and XDG folders",
        {
            "HOME": "/nonexistent",
            "XDG_CACHE_HOME": "/nonexistent/cache",
            "XDG_CONFIG_HOME": "/nonexistent/config",
            "USER": "another",
            "LOGNAME": "another",
            "COLUMNS": "20",
            "CFLAGS": "-O0",
            "MAKEFLAGS": "-k",
            "SOURCE_DATE_EPOCH": "1",
            "PYTHONUTF8": "0",
        },
    ),
    Variation("kernel", "release 2.6", wrap=("setarch", "--uname-2.6")),
    Variation("kernel", "addresses not random", wrap=("setarch", "--addr-no-randomize")),
    Variation("seed", "of hashes 1", {"PYTHONHASHSEED": "1"}),
    Variation("seed", "of hashes 4294967295", {"PYTHONHASHSEED": "4294967295"}),
)
"""In the order in which they run. Zones are rules of POSIX, which need no time zone database."""

GROUPS = tuple(dict.fromkeys(item.group for item in ALL))


def chosen(text: str) -> list[Variation]:
    """The variations of `--vary`: "all", or groups with commas between them. Raises UsageError."""
    wanted = [word.strip() for word in text.split(",")]
    if wanted == ["all"]:
        return list(ALL)
    if unknown := [word for word in wanted if word not in GROUPS]:
        raise UsageError(
            f"there is no variation {unknown[0]!r}",
            id="variation-unknown",
            cause=f"variations: all, {', '.join(GROUPS)}",
        )
    # The second rebuild shows which layers differ whatever is varied.
    return [item for item in ALL if item.group in (*wanted, AGAIN.group)]


def reached(variation: Variation, layers: Sequence[tuple[str, str]], engine: str) -> list[str]:
    """The layers that a variation can change. layers: id and producer of each. engine: the one that runs steps."""
    return [
        name
        for name, producer in layers
        if (producer == "files" and not variation.engine)
        or (producer == "dockerfile" and not variation.files and (variation.steps or engine != "docker"))
    ]
