"""The static checks of what Python imports: every file as its distribution's RECORD says, and no other file."""

from __future__ import annotations

import base64
import csv
import io
import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Iterator

from builder.smoke.check import CheckFailed, CheckNotRun, check_kind
from builder.smoke.image.scan import ScanOptions
from builder.smoke.static.context import Context, Reads
from builder.smoke.static.python import installed, normal
from builder.text import first_few

RECORDS = ("*-packages/*.dist-info/RECORD",)
_METADATA = ("*-packages/*.dist-info/METADATA",)
_PATHS = ("*-packages/*.pth",)
_MOST_RECORD, _MOST_ROWS = 8 << 20, 400_000
"""Bytes of one RECORD (the longest of a known wheel has 2 MB), and lines of all RECORD files of an image."""
_MOST_PATHS, _MOST_OF_ALL = 64 << 10, 512 << 10
"""Bytes of a `.pth` file, and of all of them."""
CUSTOMIZES = re.compile(r"(?:^|/)(?:site|user)customize(?:/__init__)?\.[^/]+$")
"""Modules that Python imports when it starts."""
_MODULES = (".py", ".pyc", ".so")
_LIBRARY = re.compile(
    r"/lib(?:64)?/python3[0-9]*\.zip$|/python3[^/]*\._?pth$|/pyvenv\.cfg$|/pybuilddir\.txt$|/Modules/Setup\.local$"
)
"""Python's own library, zipped, and the files beside its program that give it another one."""
_LIBRARY_FOLDER = re.compile(r"/lib(?:64)?/python3\.[0-9]+t?/")
_METADATA_BESIDE = re.compile(r"\.(?:dist|egg)-info(?:/|$)")
"""Metadata in a folder of sys.path, whose entry points name code."""


@check_kind("static", "records", Reads("ours", keeps=lambda image, args: RECORDS, scan=ScanOptions(files=True)))
def records(context: Context) -> str:
    """Every file in a distribution's RECORD exists, with the size and hash in RECORD; every distribution has one.
    No module is different files of two distributions, of which Python takes one.

    Bytecode is skipped, and so are files that a later layer replaces (nothing-covered checks those). The files of a
    layer that this store made are not hashed again: their RECORD was written from them; image-blobs hashes the layer.
    """
    stated, problems = _stated(context)
    bad = list(problems)
    for (listed, layer), rows in stated.items():
        entry = context.tree.get(listed)
        if entry is None:
            bad.append(f"/{listed} does not exist")
        elif entry.layer == layer and entry.kind != "file":
            bad.append(f"/{listed} is a {entry.kind}, and no file with the content that RECORD says")
        elif entry.layer == layer:
            sizes = {size for _, size in rows if size}
            if sizes and str(entry.size) not in sizes:
                bad.append(f"/{listed} has {entry.size} bytes, not {' or '.join(sorted(sizes))}")
            elif entry.sha256 and entry.sha256 not in {digest for digest, _ in rows}:
                bad.append(f"/{listed} has another content than RECORD says")
    if bad:
        raise CheckFailed(first_few(bad))
    return f"{len(stated)} files as recorded"


_IMPORTED = re.compile(r"py|so|abi3\.so|cpython-[^/]*\.so")
"""What follows the name of a module in that of its file."""
_Stated = tuple[dict[tuple[str, int], set[tuple[bytes, str]]], list[str]]


def _stated(context: Context) -> _Stated:
    return context.once("records", lambda: _read_records(context))


def recorded(context: Context) -> set[str]:
    """The paths that are in a RECORD. The check that asks keeps the files of RECORDS."""
    return {path for path, _ in _stated(context)[0]}


def _read_records(context: Context) -> _Stated:
    """By path and layer, the hashes and sizes in RECORD files, and what is wrong with these files.

    The layers are those of the distribution and of its RECORD, which differ where a layer patches the distribution.

    Two distributions may list the same file; either row is accepted.
    """
    found: dict[tuple[str, int], set[tuple[bytes, str]]] = defaultdict(set)
    bad = []
    left = _MOST_ROWS
    known: dict[str, set[str]] = {}
    for folder, name, version, layer in installed(context):
        path = f"{folder}/{name}-{version}.dist-info/RECORD"
        if not context.is_ours(layer):
            continue
        entry = context.tree.get(path)
        if entry is None:
            # Debian's packages, in the first layer, have none.
            bad += [f"/{path} does not exist"] * (layer > 0)
            continue
        # A layer that patches files of a distribution brings a RECORD for all of them.
        recorded = entry.layer
        text = context.tree.read(path, _MOST_RECORD + 1).decode("utf-8", "surrogateescape")
        left -= text.count("\n")
        if len(text) > _MOST_RECORD or left < 0:
            raise CheckFailed(f"/{path} is too long: {_MOST_RECORD} bytes, and {_MOST_ROWS} lines of all, are read")
        try:
            rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        except csv.Error as error:
            bad.append(f"/{path}: {error}")
            continue
        files: list[str] = []
        for row in rows:
            if len(row) != 3 or row[0].endswith((".pyc", "/RECORD")):
                continue
            listed = posixpath.normpath(posixpath.join("/", folder, row[0])).lstrip("/")
            files.append(listed)
            digest = _digest(row[1])
            if digest is None:
                bad.append(f"/{listed} has no sha256 in RECORD")
            else:
                for where in {layer, recorded}:
                    found[listed, where].add((digest, row[2]))
        bad += _one_module(context, files, known)
    return found, bad


def _one_module(context: Context, listed: Collection[str], known: dict[str, set[str]]) -> Iterator[str]:
    """Modules of a RECORD that are other files in another distribution, the first layer or a base. known: the files
    of modules in other RECORDs; gets those of this one."""
    modules: dict[str, set[str]] = defaultdict(set)
    for path in listed:
        # Of two folders of packages, too: the first one in sys.path counts.
        _, is_in_packages, inner = path.partition("-packages/")
        name, _, end = posixpath.basename(inner).partition(".")
        if is_in_packages and path in context.tree.entries and _IMPORTED.fullmatch(end):
            folder = posixpath.dirname(inner)
            modules[folder if name == "__init__" else posixpath.join(folder, name)].add(path)
    for module, files in modules.items():
        places = {path.partition("-packages/")[0] for path in files}
        paths = [f"{place}-packages/{module}{end}" for place in places for end in (".py", "/__init__.py", ".abi3.so")]
        entries = [(path, item) for path in paths if (item := context.tree.get(path)) is not None]
        below = {path for path, item in entries if item.layer == 0 or not context.is_ours(item.layer)}
        if (others := known.setdefault(module, files) | below) != files:
            yield f"one module of two distributions: {first_few([f'/{path}' for path in sorted(others | files)])}"


def _digest(text: str) -> bytes | None:
    if not text.startswith("sha256="):
        return None
    try:
        return base64.urlsafe_b64decode(text.removeprefix("sha256=") + "=")
    except ValueError:
        return None


@check_kind("static", "imports", Reads("ours", keeps=lambda image, args: (*RECORDS, *_METADATA, *_PATHS)))
def imports(context: Context) -> str:
    """Every file above the first layer that Python can import or runs at its start is in a RECORD: no other module
    (also beside a script), `.pth` file, sitecustomize or editable install. The metadata of a distribution names it as
    its folder does."""
    listed = recorded(context)
    bad = [*_contradictions(context), *_leading_out(context)]
    unlisted = []
    scripts = _script_folders(context)
    for path, entry in context.tree.entries.items():
        if entry.layer == 0 or not context.is_ours(entry.layer) or entry.kind not in ("file", "symlink"):
            continue
        name = posixpath.basename(path)
        if "-packages/" in path:
            if path not in listed and not name.endswith(".pyc") and not path.endswith(".dist-info/RECORD"):
                unlisted.append(f"/{path}")
        elif path not in listed and _imported(path, name, scripts):
            unlisted.append(f"/{path}")
    if unlisted and context.tree.absent and not bad:
        raise CheckNotRun(f"{first_few(unlisted)} may be in a RECORD of the base, which is not on this machine")
    if unlisted:
        bad.append(f"in no RECORD: {first_few(unlisted)}")
    if bad:
        raise CheckFailed(first_few(bad))
    return f"{len(listed)} files, all of a distribution"


def _leading_out(context: Context) -> Iterator[str]:
    """The `.pth` files of ours that add a folder outside of their packages' folder, as an editable install does."""
    left = _MOST_OF_ALL
    for path in sorted(path for pattern in _PATHS for path in context.tree.match(pattern)):
        entry, folder = context.tree.entries[path], posixpath.dirname(path)
        # Python reads those of the packages' folder itself.
        if not context.is_ours(entry.layer) or not folder.endswith("-packages") or entry.kind == "dir":
            continue
        if entry.kind != "file" or entry.size > _MOST_PATHS:
            yield f"/{path} is no small file"
            continue
        left -= entry.size
        if left < 0:
            yield f"the .pth files have more than {_MOST_OF_ALL} bytes"
            return
        for line in context.tree.read(path, _MOST_PATHS).decode("utf-8-sig", "replace").splitlines():
            added = posixpath.normpath(posixpath.join("/", folder, line.strip()))
            is_path = line.strip() and not line.startswith(("#", "import ", "import\t"))
            item = context.tree.get(added)
            # A file would be a zip of modules and plugins.
            if is_path and (not f"{added}/".startswith(f"/{folder}/") or (item is not None and item.kind != "dir")):
                yield f"/{path} adds {added[:200]} to sys.path"
                break


def _script_folders(context: Context) -> frozenset[str]:
    """The folders that come first in sys.path: that of a script in PATH or that a link there leads to, and the working
    directory for `python -m`; with links followed, as Python follows them. All folders in them, too: without
    `__init__.py` they are parts of packages (google, nvidia)."""
    tree, found = context.tree, set()
    for folder in (*context.path, context.image.settings.get("WorkingDir") or "/"):
        found.add(posixpath.normpath(folder).strip("/"))
        if tree.exists(folder):
            found.add(tree.resolve(folder))
    for path in [path for folder in found if folder for path in tree.inside(folder)]:
        if tree.entries[path].kind == "symlink" and tree.exists(path) and tree.stat(path).script:
            found.add(posixpath.dirname(tree.resolve(path)))
    todo = [folder for folder in found if folder]
    while todo:
        inside = [path for path in tree.inside(todo.pop()) if path not in found and tree.entries[path].kind == "dir"]
        found.update(inside)
        todo += inside
    return frozenset(found)


def _imported(path: str, name: str, scripts: Collection[str]) -> bool:
    """Whether Python finds a file outside of the packages' folders: its own library, zipped or not, its settings,
    modules, packages and metadata beside a script, and a link in place of a packages' folder."""
    if CUSTOMIZES.search(path) or name.endswith("-packages") or _LIBRARY.search(f"/{path}"):
        return True
    is_module = name.endswith(_MODULES)
    if not is_module and not _METADATA_BESIDE.search(path):
        return False
    if is_module and _LIBRARY_FOLDER.search(f"/{path}"):
        return True
    folder = posixpath.dirname(path)
    return folder in scripts or ("" in scripts and name.startswith("__init__.") and "/" not in folder)


def _contradictions(context: Context) -> Iterator[str]:
    for folder, name, version, layer in installed(context):
        if not context.is_ours(layer):
            continue
        path = f"{folder}/{name}-{version}.dist-info/METADATA"
        stated: dict[str, str] = {}
        for line in context.tree.read(path, 64 << 10).decode(errors="replace").splitlines():
            field, colon, value = line.partition(":")
            if not colon:
                break
            stated.setdefault(field.lower(), value.strip())
        if normal(stated.get("name", name)) != normal(name) or stated.get("version", version) != version:
            yield f"/{path} says {stated.get('name', name)} {stated.get('version', version)}"
