"""Checks that a layer's Dockerfile reads its context, its own stages, `scratch` and the pinned base, and nothing else.

An engine would fetch anything else itself (images, URLs, other frontends), and the lock does not hold it. Engines
differ in how they parse unusual syntax, so all syntax that is not known to be harmless is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn

from builder.errors import InvalidError

_INSTRUCTIONS = {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN"}
_INSTRUCTIONS |= {"SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
_FLAG = re.compile(r"--([a-z-]+)=([A-Za-z0-9_./,=:-]*)")
_LOCAL = re.compile(r"(?!github\.com/)[A-Za-z0-9._/*+-]+")
"""A source of ADD that no engine treats as a URL."""
_OF_ARCHITECTURE = "${BUILDARCH}"
_STAGE_NAME = re.compile(r"[a-z][a-z0-9._-]*")
"""What BuildKit accepts. buildah also has stages whose name is an address or `${ARGUMENT}`."""

_MOUNTS = ("bind", "tmpfs")
"""Not cache: what an earlier build left there is in no lock."""
_MOUNT_OPTIONS = ("type", "target", "dst", "destination", "source", "src")
"""Not from: buildah 1.28 follows links of the other stage to this machine's folders (CVE-2024-1753). Not rw: with
buildah the step would change the context itself, whose inputs are those of the store."""
_DIRECTIVE = re.compile(r"#\s*(syntax|escape|check)\s*=", re.IGNORECASE)
_HEREDOC = re.compile(r"(^|\s)\d*<<")


def check_stages(text: str, *, base: str | None, where: str, target: str | None = None) -> None:
    """Refuse a Dockerfile that can read anything but its context and `base`.

    base: the reference of the pinned base, if the layer reads it. target: the name that the last stage must have.
    Raises InvalidError.
    """
    known = {"scratch"}
    stage: list[str] = []
    for name, rest in _instructions(text, where):
        words = rest.split()
        # A stage is known to the stages after it: in its own instructions, buildah takes its name for an image's.
        known |= {stage[0]} if name == "FROM" and stage else set()
        if name == "FROM":
            stage = [_stage(words, known, base, where), words[-3]]
            continue
        if not stage:
            _refuse(f"{name} {rest}", where, "a Dockerfile begins with FROM: an argument before it changes all stages")
        stage.append(f"{name} {rest}")
        if name in ("RUN", "COPY"):
            if _HEREDOC.search(rest):
                _refuse(f"{name} with a heredoc", where, "buildah 1.28 does not support heredocs")
            for word in _flags(words):
                _check_flag(name, word, known, where)
        elif name == "ADD":
            # ARG and ENV could make an address of the variable.
            if len(stage) <= 4 and stage[1:-1] in (["scratch"], ["scratch", "ARG BUILDARCH"]):
                words = [word.replace(_OF_ARCHITECTURE, "", 1) for word in words]
            if not words or not all(_LOCAL.fullmatch(word) for word in words):
                _refuse(f"ADD {rest}", where, "ADD may unpack archives of the context, without flags")
    # The name of a layer is not in its key: with that of another stage, the same key would have other bytes.
    if target is not None and stage[:1] != [target.lower()]:
        _refuse(f"a last stage other than {target}", where, f"the layer is what its last stage holds: AS {target}")


def _instructions(text: str, where: str) -> Iterator[tuple[str, str]]:
    """The instructions, each with the rest of its logical line."""
    if found := re.search(r"[\x00-\x08\x0b-\x1f\x7f\ufeff]", text):
        _refuse(f"the character {found[0]!a}", where, "a Dockerfile is text with plain line breaks")
    pending, begun, within = "", False, False
    for line in text.split("\n"):
        comment = line.lstrip().startswith("#")
        if comment and not begun and _DIRECTIVE.match(line.strip()):
            _refuse(line.strip(), where, "parser directives are not allowed: a frontend is not locked")
        if comment and within and pending[:4].upper() != "RUN ":
            _refuse(line.strip(), where, "only RUN may have comments within: engines differ in whether they skip them")
        if not line.strip() or comment:
            continue
        begun = True
        if found := re.search(r"\\[ \t]*$", line):
            # Without blanks before it: each comment within an instruction looks at its beginning.
            pending += line[: found.start()] if pending else line[: found.start()].lstrip()
            within = True
            if pending and not pending[-1].isspace():
                _refuse("a word that continues on the next line", where, "engines differ in how they join its parts")
            continue
        name, rest = re.fullmatch(r"(\S*)\s*(.*)", (pending + line).strip()).groups()  # type: ignore[union-attr]
        pending, within = "", False
        if name.upper() not in _INSTRUCTIONS:
            _refuse(name or line, where, "layers may not use this instruction")
        yield name.upper(), rest
    if pending.strip():
        _refuse("a last line that ends in a backslash", where, "nothing follows it")


def _stage(words: list[str], known: set[str], base: str | None, where: str) -> str:
    """The name of the stage that a FROM begins."""
    from_ = [word for word in words if not word.startswith("--platform=")]
    if len(from_) != 3 or from_[1].upper() != "AS":
        _refuse(f"FROM {' '.join(words)}", where, "a stage is FROM SOURCE AS NAME")
    if from_[0].lower() not in known and from_[0] != base:
        allowed = "the base, with `reads_base: true` in layer.yaml" if base is None else f"the base {base}"
        _refuse(f"FROM {from_[0]}", where, f"a stage starts from scratch, an earlier stage, or {allowed}")
    name = from_[2].lower()
    if not _STAGE_NAME.fullmatch(name) or name in known:
        _refuse(f"AS {from_[2]}", where, "a stage has a new name of letters, digits, dots, hyphens, underscores")
    return name


def _flags(words: list[str]) -> Iterator[str]:
    for word in words:
        if not word.startswith("--"):
            return
        yield word


def _check_flag(name: str, word: str, known: set[str], where: str) -> None:
    found = _FLAG.fullmatch(word)
    if found is None or (name == "RUN" and found[1] != "mount"):
        _refuse(
            f"{name} {word}",
            where,
            "RUN may have --mount=…, COPY --from=… and other flags, all without quotes",
        )
    if name == "RUN":
        # Without quotes, which the pattern refuses, CSV is this.
        options = [(key.lower(), value) for key, _, value in (field.partition("=") for field in found[2].split(","))]
        if any(key == "type" and value not in _MOUNTS for key, value in options):
            _refuse(f"RUN {word}", where, "a mount is of type bind or tmpfs; others bring files that are in no lock")
        if any(key not in _MOUNT_OPTIONS for key, _ in options):
            _refuse(f"RUN {word}", where, "a mount has type, source and target alone, and COPY --from reads a stage")
    elif found[1] == "from" and (found[2].lower() not in known or found[2] == "scratch"):
        _refuse(f"COPY {word}", where, f"{found[2]} is not an earlier stage")


def _refuse(what: str, where: str, why: str) -> NoReturn:
    raise InvalidError(
        f"{what}: not allowed in the Dockerfile of a layer",
        id="dockerfile-forbidden",
        where=where,
        cause=why,
        next="list its inputs under `inputs:` of layer.yaml, so that they are locked; see docs/add-a-layer.md",
    )
