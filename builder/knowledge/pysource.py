"""Python source of a package as syntax trees: constants, literals and class fields, without importing anything."""

from __future__ import annotations

import ast
import re
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from builder.errors import InvalidError
from builder.unpack.bounds import RATIO, Budget, Unpacked
from builder.unpack.entry import UnpackError
from builder.unpack.tar import Archive

_FILE_LIMIT = 2 << 20
_ARCHIVE_LIMIT = 2 << 30
"""Bytes of one file that is read, and of all files, unpacked: vLLM's largest is 1 MB, all are 200 MB."""
_TOKEN = re.compile(r"\w+|[^\w\s]")
_MOST_TOKENS = 600_000
"""Words and other characters of all files that are parsed: a node of a tree takes 600 bytes. vLLM's have 200,000."""


@dataclass(frozen=True)
class Hint:
    """The content of a type annotation: the strings of its Literals, and the plain names in it."""

    literals: tuple[str, ...]
    names: frozenset[str]

    @property
    def is_bool(self) -> bool:
        return "bool" in self.names

    @property
    def closed(self) -> bool:
        """Whether only the literals are allowed."""
        return bool(self.literals) and "str" not in self.names


class Sources:
    """The text files of a source distribution, by path below its top folder."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self._trees: dict[str, ast.Module] = {}
        self._tokens = _MOST_TOKENS
        self._names: dict[str, tuple[dict[str, ast.stmt], dict[str, str]]] = {}
        self._fields: dict[ast.ClassDef, dict[str, ast.AnnAssign]] = {}
        self._hints: dict[tuple[str, str, int], Hint] = {}

    @classmethod
    def from_sdist(cls, path: Path) -> Sources:
        """Reads a .tar.gz. Only the files that an extractor reads are kept; nothing is written. Raises InvalidError."""
        files: dict[str, bytes] = {}
        total = 0
        try:
            with path.open("rb", buffering=0) as file:
                stream = Unpacked(file, "gz", path.name, Budget(_ARCHIVE_LIMIT // RATIO))
                # Not tarfile, which reads extended headers of any length into memory.
                for member in Archive(stream, path.name, may_comment=True):
                    _, _, name = member.name.partition("/")
                    total += member.size
                    if total > _ARCHIVE_LIMIT:
                        raise InvalidError(
                            f"holds more than {_ARCHIVE_LIMIT} bytes", id="sdist-too-large", where=str(path)
                        )
                    if member.isfile() and _is_wanted(name):
                        if member.size > _FILE_LIMIT:
                            raise InvalidError(
                                f"{name} has more than {_FILE_LIMIT} bytes", id="sdist-file-too-large", where=str(path)
                            )
                        files[name] = stream.read(member.size)
        except (OSError, UnpackError, EOFError, ValueError, zlib.error) as error:
            what = f"not a readable source distribution: {error}"
            raise InvalidError(what, id="sdist-unreadable", where=str(path)) from error
        return cls(files)

    @cached_property
    def modules(self) -> frozenset[str]:
        """The paths of all Python files."""
        return frozenset(path for path in self.files if path.endswith(".py"))

    def text(self, path: str) -> str:
        """A file's text. Raises InvalidError when it is not there."""
        if path not in self.files:
            raise InvalidError(
                f"{path} is not in the source distribution",
                id="sdist-file-missing",
                next="adapt builder/knowledge/extract.py to the new path",
            )
        try:
            return self.files[path].decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidError("not UTF-8 text", id="sdist-file-not-utf8", where=path) from None

    def tree(self, path: str) -> ast.Module:
        """A file's syntax tree."""
        if path not in self._trees:
            text = self.text(path)
            self._tokens -= sum(1 for _ in _TOKEN.finditer(text))
            if self._tokens < 0:
                raise InvalidError("too many of its files are read", id="sdist-code-too-long", where=path)
            try:
                self._trees[path] = ast.parse(text)
            except SyntaxError as error:
                where = f"{path}:{error.lineno or 1}"
                raise _syntax_error(error.msg, where) from error
            except (ValueError, RecursionError, MemoryError) as error:
                raise _syntax_error(type(error).__name__, path) from error
        return self._trees[path]

    def module(self, dotted: str) -> str | None:
        """The path of a module by its dotted name."""
        base = dotted.replace(".", "/")
        return next((path for path in (f"{base}.py", f"{base}/__init__.py") if path in self.files), None)

    def find(self, path: str, name: str, depth: int = 0) -> tuple[str, ast.stmt] | None:
        """The definition of `name`, as seen in module `path`: the defining module's path, and the assignment or class.

        Follows imports, also those under `if TYPE_CHECKING:`.
        """
        if depth > 8:
            return None
        defined, imported = self._names_in(path)
        if name in defined:
            return path, defined[name]
        other = imported.get(name, path)
        return self.find(other, name, depth + 1) if other != path else None

    def fields(self, node: ast.ClassDef) -> dict[str, ast.AnnAssign]:
        """The annotated fields of a class body, in order."""
        if node not in self._fields:
            self._fields[node] = {
                item.target.id: item
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            }
        return self._fields[node]

    def _names_in(self, path: str) -> tuple[dict[str, ast.stmt], dict[str, str]]:
        """The first definition of each name in a module, and the module that each other name is imported from."""
        if path not in self._names:
            defined: dict[str, ast.stmt] = {}
            imported: dict[str, str] = {}
            for node in ast.walk(self.tree(path)):
                if isinstance(node, ast.ClassDef):
                    defined.setdefault(node.name, node)
                elif isinstance(node, ast.Assign | ast.AnnAssign):
                    if not (isinstance(node, ast.Assign) and getattr(node.value, "id", "") == "Any"):
                        for name in _assigned(node):
                            defined.setdefault(name, node)
                elif isinstance(node, ast.ImportFrom) and node.module and (module := self.module(node.module)):
                    imported |= {item.asname or item.name: module for item in node.names}
            self._names[path] = (defined, imported)
        return self._names[path]

    def hint(self, path: str, node: ast.expr | None, depth: int = 0) -> Hint:  # noqa: PLR0911
        """The hint of the annotation `node` in module `path`, with the names in it resolved."""
        if node is None or depth > 8:
            return Hint((), frozenset())
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and depth == 0:
                return self.hint(path, ast.parse(node.value, mode="eval").body, depth + 1)
            return Hint((), frozenset({str(node.value)}))
        if isinstance(node, ast.BinOp):
            return _joined([self.hint(path, node.left, depth), self.hint(path, node.right, depth)])
        if isinstance(node, ast.Subscript):
            head = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if head == "Literal":
                return _joined([self._literal(path, item, depth) for item in items])
            if head in ("Annotated", "SkipValidation"):
                return self.hint(path, items[0], depth)
            if head in ("Union", "Optional"):
                return _joined([self.hint(path, item, depth) for item in items])
            return Hint((), frozenset({head}))
        if isinstance(node, ast.Name):
            return self._named(path, node.id, depth)
        return Hint((), frozenset({getattr(node, "attr", "")}))

    def _literal(self, path: str, item: ast.expr, depth: int) -> Hint:
        if isinstance(item, ast.Constant):
            return Hint((str(item.value),), frozenset())
        return self.hint(path, item, depth + 1)

    def _named(self, path: str, name: str, depth: int) -> Hint:
        # Each once: definitions that name each other would multiply.
        key = (path, name, depth)
        if key not in self._hints:
            self._hints[key] = self._looked_up(path, name, depth)
        return self._hints[key]

    def _looked_up(self, path: str, name: str, depth: int) -> Hint:
        if name in ("str", "int", "float", "bool", "dict", "list", "set", "tuple", "None", "Any"):
            return Hint((), frozenset({name}))
        found = self.find(path, name)
        if found is None:
            return Hint((), frozenset({name}))
        where, node = found
        if isinstance(node, ast.ClassDef):
            is_enum = any("Enum" in ast.unparse(base) for base in node.bases)
            return Hint(enum_names(node), frozenset()) if is_enum else Hint((), frozenset({name}))
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        return self.hint(where, value, depth + 1)


def moved_error(what: str, where: str) -> InvalidError:
    """The error for a definition that a version of vLLM does not have where the extractor reads it."""
    return InvalidError(what, id="vllm-source-moved", where=where)


def _syntax_error(reason: str, where: str) -> InvalidError:
    return InvalidError(f"not readable as Python: {reason}", id="sdist-file-syntax", where=where)


def _is_wanted(name: str) -> bool:
    is_python = name == "setup.py" or (name.startswith("vllm/") and name.endswith(".py"))
    wanted = is_python or name.startswith("requirements/") or name == "docker/Dockerfile"
    return wanted and ".." not in PurePosixPath(name).parts


def enum_names(node: ast.ClassDef) -> tuple[str, ...]:
    """The members of an Enum class."""
    return tuple(name for item in node.body for name in _assigned(item) if not name.startswith("_"))


def constant_keys(node: ast.stmt) -> tuple[str, ...]:
    """The text keys of the dict that an assignment holds."""
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if not isinstance(value, ast.Dict):
        return ()
    return tuple(key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


def _assigned(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Assign):
        return tuple(target.id for target in node.targets if isinstance(target, ast.Name))
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return (node.target.id,)
    return ()


def _joined(hints: list[Hint]) -> Hint:
    literals = tuple(dict.fromkeys(item for hint in hints for item in hint.literals))
    return Hint(literals, frozenset().union(*(hint.names for hint in hints)))
