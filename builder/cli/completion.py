"""Completion in shells: the values of options and arguments, by their names. Imported only while a shell asks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from builder.atomic import write_file
from builder.cli.words import choices
from builder.errors import BuilderError
from builder.folders import Folders

if TYPE_CHECKING:
    from builder.project import Project

SHELLS = ("bash", "zsh", "fish")

_ZSH_FIRST = 'if [[ $funcstack[1] == _builder ]]; then _builder_completion "$@"; fi\n'
"""zsh loads the file at the first completion, as the body of a function: without this line that one has no answer."""


_SAFE = re.compile(r"[A-Za-z0-9_.,:+=@%/-]+")
"""zsh evaluates what completion prints, and every shell puts it into the line that the user runs. The folder may be a
stranger's: a value with any other character is not offered."""


def install(shell: str) -> str:
    """Install completion for a shell, for this user; the file that was written."""
    _, path = _typer().install(shell=shell, prog_name="builder", complete_var="_BUILDER_COMPLETE")
    if shell == "zsh":
        write_file(path, script(shell).encode())
    return str(path)


def script(shell: str) -> str:
    """The script that a shell reads."""
    text: str = _typer().get_completion_script(prog_name="builder", complete_var="_BUILDER_COMPLETE", shell=shell)
    return f"{text}\n{_ZSH_FIRST}" if shell == "zsh" else text


def prepare() -> None:
    """Register the shells; call it before a shell's question is answered."""
    _typer().completion_init()


def _typer() -> Any:
    # Its functions are public, but not declared as exported.
    return import_module("typer.completion")


def values(command: str, parameter: str, given: dict[str, Any]) -> list[str]:
    """What a parameter of a command can be. given: the options before it. An invalid project completes nothing."""
    if words := choices(command, parameter):
        return [*words]
    find = _VALUES.get(f"{command} {parameter}") or _VALUES.get(parameter)
    with contextlib.suppress(BuilderError, OSError):
        return [value for value in (find(Folders(), given) if find else ()) if _SAFE.fullmatch(value)]
    return []


def _project(folders: Folders) -> Project:
    """What is read of the files. Imported here: the models take most of the time of an answer."""
    from builder.project import Project

    return Project(folders.roots)


def _bases(folders: Folders, given: dict[str, Any]) -> Iterable[str]:
    """The bases of the given recipe, or all, with their aliases."""
    from builder.plan.bases import bases_of

    project, recipe = _project(folders), _recipe(given)
    bases = bases_of(project, project.recipe(recipe)) if recipe else project.bases.values()
    return dict.fromkeys(name for base in bases for name in (base.name, *base.aliases))


def _profiles(folders: Folders, given: dict[str, Any]) -> Iterable[str]:
    project, recipe = _project(folders), _recipe(given)
    return sorted({*project.shared_profiles, *(project.recipe(recipe).profiles if recipe else ())})


def _sets(folders: Folders, given: dict[str, Any]) -> Iterable[str]:
    """LAYER.PARAMETER=, and with the values that the parameter can have."""
    project, recipe = _project(folders), _recipe(given)
    names = [use.layer for use in project.recipe(recipe).layers] if recipe else project.layer_names()
    for name in names:
        for key, parameter in project.layer(name).definition.parameters.items():
            yield from [f"{name}.{key}={choice}" for choice in parameter.choices] or [f"{name}.{key}="]


def _recipe(given: dict[str, Any]) -> str | None:
    recipe = given.get("recipe") or given.get("word")
    return next(iter(recipe), None) if isinstance(recipe, list | tuple) else recipe


def _rules(folders: Folders, given: dict[str, Any]) -> Iterable[str]:
    from builder.knowledge.rule import all_rules

    return [rule.id for rule in all_rules()]


def _named(folders: Folders, given: dict[str, Any]) -> Iterable[str]:
    return [*folders.recipe_names(), *folders.layer_names(), *_bases(folders, {}), *_profiles(folders, {})]


_VALUES: dict[str, Callable[[Folders, dict[str, Any]], Iterable[str]]] = {
    "recipe": lambda folders, given: folders.recipe_names(),
    "word": lambda folders, given: folders.recipe_names(),
    "explain word": lambda folders, given: [*folders.recipe_names(), *folders.layer_names()],
    "recipes": lambda folders, given: folders.recipe_names(),
    "extends": lambda folders, given: folders.recipe_names(),
    "base": _bases,
    "profile": _profiles,
    "set_": _sets,
    "layer": lambda folders, given: folders.layer_names(),
    "beside": lambda folders, given: folders.layer_names(),
    "platform": lambda folders, given: ["linux/arm64"],
    "rules id_": _rules,
    "show name": _named,
    "lock names": lambda folders, given: [*folders.base_names(), *folders.section_names()],
}
"""By the name of a parameter, or of a command and its parameter."""
