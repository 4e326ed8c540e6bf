"""Layer: the contents of `dockerfiles/layers/NAME/layer.yaml`, with its parameters, inputs and files."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from builder.model.base import Family
from builder.model.check import Check
from builder.model.common import Boolean, EnvName, LabelName, Line, Name, ParameterName, RelativePath, Scalar, Strict
from builder.model.condition import Condition, parameters_of
from builder.pattern import compiled

PLACEHOLDER = re.compile(r"\{\{ *(?P<of>base|params)\.(?P<name>[a-z][a-z0-9_]{0,31}) *\}\}")
"""A placeholder in a text of a layer.yaml: a fact of the base, or a parameter of the layer."""


def _only_placeholders(text: str) -> str:
    rest = PLACEHOLDER.sub("", text)
    if "{{" in rest or "{%" in rest:
        raise ValueError("only {{ base.NAME }} and {{ params.NAME }} can be used here")
    return text


Template = Annotated[Line, AfterValidator(_only_placeholders)]
"""Text with placeholders."""

_LONGEST = 4096
"""Characters of a text value: engines limit the length of a Dockerfile's lines."""

_MOST_PARAMETERS = 100
"""To compile a pattern takes up to 10 ms."""

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Parameter(Strict):
    """One parameter of a layer. `pattern` must match the whole of a text value."""

    type: Literal["text", "flag", "integer", "list"]
    default: Scalar | tuple[Line, ...] | None = None
    choices: tuple[Scalar, ...] = ()
    pattern: Line | None = None
    help: Line

    @model_validator(mode="after")
    def _text_is_bounded(self) -> Parameter:
        if self.type in ("text", "list") and not self.choices and self.pattern is None:
            raise ValueError("a text parameter needs choices or a pattern: its values reach Dockerfiles")
        if self.pattern is not None:
            compiled(self.pattern)
        if self.default is not None:
            try:
                self.value(self.default)
            except ValueError as error:
                raise ValueError(f"default: {error}") from None
        return self

    def value(self, given: object) -> bool | int | str | tuple[str, ...]:
        """The parameter's value from `given`: text of a command line, or a value of a YAML file. Raises ValueError."""
        if self.type == "flag":
            word = _WORDS.get(str(given).lower())
            if word is None:
                raise ValueError("must be true or false")
            return word
        if self.type == "integer":
            if isinstance(given, bool) or not re.fullmatch(r"[+-]?[0-9]{1,18}", str(given)):
                raise ValueError("must be a whole number")
            self._check(str(int(str(given))))
            return int(str(given))
        if self.type == "list":
            if isinstance(given, str):
                given = [item.strip() for item in given.split(",")] if given.strip() else []
            if not isinstance(given, list | tuple):
                raise ValueError("must be a list")
            return tuple(self._check(item) for item in given)
        return self._check(given)

    def _check(self, text: object) -> str:
        if not isinstance(text, str):
            raise ValueError("must be text: put it in quotes")
        if len(text) > _LONGEST:
            raise ValueError(f"must have at most {_LONGEST} characters")
        if self.choices and text not in map(str, self.choices):
            raise ValueError(f"must be one of {', '.join(map(str, self.choices))}")
        if self.pattern is not None and not compiled(self.pattern).fullmatch(text):
            raise ValueError(f"must match {self.pattern}")
        return text


class Environment(Strict):
    """A variable that the layer sets; mode prepend: put before the image's value, joined by a colon."""

    name: EnvName
    value: Template
    mode: Literal["set", "prepend"] = "set"
    when: Condition | None = None
    why: Line | None = None


class Label(Strict):
    """An image label that the layer sets."""

    name: LabelName
    value: Template
    when: Condition | None = None


class WheelGroup(Strict):
    """The wheels of a lock section that go into the layer, and their place.

    only: the names of the distributions, or `params.NAME`, a parameter that holds them; an empty list means all that no
    other use of the layer takes. Without `only`, the whole section. strip: unpack only the files under this path of the
    wheels, into `into`, without metadata (so the CUDA compiler's wheels become CUDA_HOME). Without `strip`, the wheels
    are installed as distributions into the base's site directory.
    """

    lock: Template
    only: tuple[Name, ...] | Annotated[str, Field(pattern=r"^params\.[a-z][a-z0-9_]{0,31}$")] | None = None
    when: Condition | None = None
    strip: RelativePath | None = None
    into: Template | None = None


class PackageGroup(Strict):
    """Debian packages of a lock section whose files the steps of a Dockerfile read. only: their names."""

    lock: Template
    only: Annotated[tuple[Template, ...], Field(min_length=1)]


class Patch(Strict):
    """Files of a source that are laid over an installed distribution, whose RECORD then lists them.

    lock, distribution, version: the wheel that the base installs, which must have exactly this version. source:
    NAME/VERSION. folder: the folder of the source that the package lies in, or empty. files: `params.NAME`, a parameter
    with the paths of the files, as they are installed.
    """

    lock: Template
    distribution: Template
    version: Template
    source: Template
    folder: Template = ""
    files: Annotated[str, Field(pattern=r"^params\.[a-z][a-z0-9_]{0,31}$")]


class Inputs(Strict):
    """Locked inputs. debs: a section that becomes a root, or is laid over one. sources: NAME/VERSION.

    toolchain: the compile root.
    """

    debs: Template | None = None
    wheels: tuple[WheelGroup, ...] = ()
    packages: tuple[PackageGroup, ...] = ()
    patches: tuple[Patch, ...] = ()
    sources: tuple[Template, ...] = ()
    toolchain: Boolean = False


class PlacedFile(Strict):
    """A file (`content` or `source`, a file in the layer's folder), a symlink (`link`) or a directory."""

    path: Template
    link: Template | None = None
    content: str | None = None
    source: RelativePath | None = None
    directory: Boolean = False
    mode: Annotated[str, Field(pattern=r"^0[0-7]{3,4}$")] | None = None
    when: Condition | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> PlacedFile:
        if sum((self.link is not None, self.content is not None, self.source is not None, self.directory)) != 1:
            raise ValueError("needs exactly one of link, content, source, directory")
        return self


class Replacement(Strict):
    """A file of the base or of an earlier layer that the layer's files may cover."""

    path: Template
    when: Condition | None = None


class LayerCheck(Check):
    """A smoke check of a layer; it is left out when its condition does not hold."""

    when: Condition | None = None


class Requirement(Strict):
    """A condition on base or parameters. When it is false, the layer does not apply; why: the cause for the user."""

    when: Condition
    why: Line


class Layer(Strict):
    """A layer definition.

    producer: `files` is unpacked in this process, `dockerfile` runs commands in an engine, `config` adds no file.
    reads_base: its steps read the base's files.
    """

    name: Name
    title: Line
    producer: Literal["files", "dockerfile", "config"]
    root: Boolean = False
    families: tuple[Family, ...] = ("ngc", "vllm-openai", "hermetic")
    needs: tuple[Requirement, ...] = ()
    parameters: Annotated[dict[ParameterName, Parameter], Field(max_length=_MOST_PARAMETERS)] = {}
    inputs: Inputs = Inputs()
    files: tuple[PlacedFile, ...] = ()
    replaces: tuple[Template | Replacement, ...] = ()
    reads_base: Boolean = False
    env: tuple[Environment, ...] = ()
    labels: tuple[Label, ...] = ()
    checks: tuple[LayerCheck, ...] = ()
    notes: tuple[Line, ...] = ()

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        """`replaces`, in one form."""
        return tuple(Replacement(path=each) if isinstance(each, str) else each for each in self.replaces)

    @model_validator(mode="after")
    def _producer_fits(self) -> Layer:
        has_content = bool(self.files or self.inputs.debs or self.inputs.wheels or self.inputs.patches)
        steps = bool(self.inputs.sources or self.inputs.toolchain or self.inputs.packages)
        if self.producer == "config" and (has_content or steps):
            raise ValueError("a config layer adds no file")
        if self.producer == "files" and steps:
            raise ValueError("only a dockerfile layer can use sources, packages or the toolchain")
        if self.producer == "dockerfile" and self.inputs.patches:
            raise ValueError("only a files layer lays patches over a distribution")
        if self.producer == "files" and not has_content:
            raise ValueError("a files layer needs debs, wheels, patches or files")
        if self.root and self.inputs.debs is None:
            raise ValueError("a root layer is made of Debian packages")
        return self

    @model_validator(mode="after")
    def _parameters_exist(self) -> Layer:
        conditional: tuple[Any, ...] = (
            *(*self.needs, *self.env, *self.labels, *self.files, *self.replacements, *self.checks),
            *self.inputs.wheels,
        )
        for name, expected in parameters_of(each.when for each in conditional if each.when):
            if name not in self.parameters:
                raise ValueError(f"a condition tests params.{name}, but the layer has no parameter {name!r}")
            if self.parameters[name].value(expected) != expected:
                raise ValueError(f"a condition compares params.{name} with {expected!r}, which is no value of it")
        lists = [group.only for group in self.inputs.wheels] + [patch.files for patch in self.inputs.patches]
        for each in lists:
            if isinstance(each, str) and each.removeprefix("params.") not in self.parameters:
                raise ValueError(f"only, files: the layer has no parameter {each.removeprefix('params.')!r}")
        return self
