"""A git server on loopback like GitHub: repositories over git's smart protocol, archives of tags at the same paths."""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote

from tests.support.loopback import listening

_IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")


def git(folder: Path, *arguments: str, **more: str) -> str:
    """Run git in a folder; what it printed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | more
    command = ["git", *_IDENTITY, *arguments]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=True).stdout.strip()


@dataclass
class Forge:
    """root: holds OWNER/REPO. Archives are made on demand; `archives` are served instead. dumb: files only, no program.

    Paths in `lost` are answered with 404, those in `broken` with 503.
    """

    root: Path
    address: str = ""
    archives: dict[str, bytes] = field(default_factory=dict)
    dumb: bool = False
    lost: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def repository(self, name: str, files: dict[str, str], tag: str) -> Path:
        """Commit files as a new state of a repository, and tag it (annotated); the folder."""
        folder = self.root / name
        if not folder.exists():
            folder.mkdir(parents=True)
            git(folder, "init", "-q")
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "--allow-empty", "-m", tag)
        git(folder, "tag", "-f", "-a", "-m", tag, tag)
        git(folder, "update-server-info")
        return folder

    def archive(self, name: str, tag: str) -> bytes:
        """As GitHub makes them: below REPO-VERSION/, gzip without a name or time."""
        prefix = f"{name.rpartition('/')[2]}-{tag.removeprefix('v')}/"
        command = ["git", "archive", "--format=tar", f"--prefix={prefix}", tag]
        tar = subprocess.run(command, cwd=self.root / name, capture_output=True, check=True).stdout
        return gzip.compress(tar, mtime=0)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    forge: Forge

    def do_GET(self) -> None:
        forge = self.forge
        path, _, query = unquote(self.path).partition("?")
        forge.asked.append(f"{self.command} {path}")
        if path in forge.lost or path in forge.broken:
            self._answer(404 if path in forge.lost else 503, b"")
        elif path in forge.archives:
            self._answer(200, forge.archives[path])
        elif "/archive/" in path:
            name, _, file = path.strip("/").replace("refs/tags/", "").partition("/archive/")
            try:
                self._answer(200, forge.archive(name, file.removesuffix(".tar.gz")))
            except (subprocess.CalledProcessError, OSError):
                self._answer(404, b"")
        elif forge.dumb:
            file_path = forge.root / path.strip("/").replace(".git/", "/.git/", 1)
            self._answer(200, file_path.read_bytes()) if file_path.is_file() else self._answer(404, b"")
        else:
            self._program(path, query)

    do_POST = do_GET

    def _program(self, path: str, query: str) -> None:
        """git http-backend, a CGI program."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        name, _, rest = path.partition(".git/")
        environ = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.forge.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REQUEST_METHOD": self.command,
            "PATH_INFO": f"{name}/.git/{rest}",
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environ, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        lines = [line.partition(": ")[::2] for line in head.decode().split("\r\n") if line]
        status = next((int(value.split()[0]) for name, value in lines if name == "Status"), 200)
        self._answer(status, content, {name: value for name, value in lines if name != "Status"})

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def running(root: Path) -> Iterator[Forge]:
    """A forge without repositories."""
    forge = Forge(root)
    with listening(_Handler, forge=forge) as host:
        forge.address = f"http://{host}"
        yield forge
