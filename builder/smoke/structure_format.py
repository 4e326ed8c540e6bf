"""The format of container-structure-test, schema 2.0.0: models of a test file, and its regular expressions (RE2)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SETUP_FAILED = 125
"""The exit status of a command test whose setup failed."""

_LISTED = Field(strict=False)
"""A YAML list may become a tuple; nothing else is converted."""


class _Part(BaseModel):
    """Field names are the format's own; unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Variable(_Part):
    """A variable, or a label: its value, or with isRegex a pattern of it."""

    key: Annotated[str, Field(min_length=1)]
    value: str = ""
    isRegex: bool = False


class Unset(_Part):
    """A variable that must not be set."""

    key: Annotated[str, Field(min_length=1)]
    value: str = ""


class CommandTest(_Part):
    """A command, its expected output and exit status."""

    name: str
    command: str
    args: Annotated[tuple[str, ...], _LISTED] = ()
    setup: Annotated[tuple[Annotated[tuple[str, ...], _LISTED], ...], _LISTED] = ()
    teardown: Annotated[tuple[Annotated[tuple[str, ...], _LISTED], ...], _LISTED] = ()
    envVars: Annotated[tuple[Variable, ...], _LISTED] = ()
    expectedOutput: Annotated[tuple[str, ...], _LISTED] = ()
    excludedOutput: Annotated[tuple[str, ...], _LISTED] = ()
    expectedError: Annotated[tuple[str, ...], _LISTED] = ()
    excludedError: Annotated[tuple[str, ...], _LISTED] = ()
    exitCode: int = 0


class FileExistenceTest(_Part):
    """Whether a path exists, its mode and its owner."""

    name: str
    path: str
    shouldExist: bool = True
    permissions: str | None = None
    uid: int | None = None
    gid: int | None = None
    isExecutableBy: Literal["owner", "group", "other", "any"] | None = None


class FileContentTest(_Part):
    """Patterns that a file contains, and patterns that it does not contain."""

    name: str
    path: str
    expectedContents: Annotated[tuple[str, ...], _LISTED] = ()
    excludedContents: Annotated[tuple[str, ...], _LISTED] = ()


class MetadataTest(_Part):
    """The expected configuration of the image."""

    envVars: Annotated[tuple[Variable, ...], _LISTED] = ()
    env: Annotated[tuple[Variable, ...], _LISTED] = ()
    unboundEnvVars: Annotated[tuple[Unset, ...], _LISTED] = ()
    labels: Annotated[tuple[Variable, ...], _LISTED] = ()
    entrypoint: Annotated[tuple[str, ...] | None, _LISTED] = None
    cmd: Annotated[tuple[str, ...] | None, _LISTED] = None
    exposedPorts: Annotated[tuple[str | int, ...], _LISTED] = ()
    unexposedPorts: Annotated[tuple[str | int, ...], _LISTED] = ()
    volumes: Annotated[tuple[str, ...], _LISTED] = ()
    unmountedVolumes: Annotated[tuple[str, ...], _LISTED] = ()
    workdir: str | None = None
    user: str | None = None


class RunOptions(_Part):
    """Options of the containers of command tests."""

    user: str = ""
    envFile: str | None = None
    envVars: Annotated[tuple[str, ...], _LISTED] = ()
    privileged: bool = False
    allocateTty: bool = False
    capabilities: Annotated[tuple[str, ...], _LISTED] = ()
    bindMounts: Annotated[tuple[str, ...], _LISTED] = ()


class StructureTest(_Part):
    """A test file."""

    schemaVersion: Literal["2.0.0"]
    globalEnvVars: Annotated[tuple[Variable, ...], _LISTED] = ()
    commandTests: Annotated[tuple[CommandTest, ...], _LISTED] = ()
    fileExistenceTests: Annotated[tuple[FileExistenceTest, ...], _LISTED] = ()
    fileContentTests: Annotated[tuple[FileContentTest, ...], _LISTED] = ()
    metadataTest: MetadataTest | None = None
    licenseTests: Annotated[tuple[dict[str, Any], ...], _LISTED] = ()
    containerRunOptions: RunOptions = RunOptions()
