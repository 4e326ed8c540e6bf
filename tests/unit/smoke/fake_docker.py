"""A `docker` for tests, without a daemon: it keeps its containers in a folder. Also a program, with FAKE_DOCKER set.

In the folder, `images.json` holds ids by name, `probes.json` what each probe prints (or {"exit": code, "said": text},
or "hang"), `server` the faults of the server, and `calls` all arguments. On a peer, files of the folder `peer` count
first.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

SERVER = Path(__file__).with_name("openai_server.py")
Answer = tuple[int, str, str]
"""Exit status, standard output, standard error."""


class FakeDocker:
    """threads: servers are threads of this process, which is quicker than programs."""

    def __init__(self, home: Path, peer: bool = False, threads: dict[str, ThreadingHTTPServer] | None = None) -> None:
        self.home, self.peer, self.threads = home, peer, threads

    def kept(self, name: str) -> str:
        theirs = self.home / "peer" / name
        file = theirs if self.peer and theirs.exists() else self.home / name
        return file.read_text() if file.exists() else "{}"

    def __call__(self, *words: str) -> Answer:  # noqa: PLR0911
        with (self.home / "calls").open("a") as file:
            file.write(json.dumps(["peer", *words] if self.peer else words) + "\n")
        match words:
            case ["version", *_]:
                down = (self.home / "no daemon").exists()
                return (1, "", "Cannot connect to the Docker daemon\n") if down else (0, "28.2.2\n", "")
            case ["image", "inspect", *_, name]:
                found = json.loads(self.kept("images.json")).get(name)
                return (0, f"{found}\n", "") if found else (1, "", f"Error: No such image: {name}\n")
            case ["run", *options]:
                return self.run(options)
            case ["logs", name]:
                return 0, (self.home / name / "log").read_text(), ""
            case ["inspect", *_, name]:
                code = self.home / name / "code"
                ended = code.exists()
                return 0, json.dumps({"Running": not ended, "ExitCode": int(code.read_text()) if ended else 0}), ""
            case ["stop", "-t", patience, name]:
                self.stop(name, float(patience))
                return 0, name, ""
            case ["rm", *_, name]:
                self.stop(name, 0)
                if (self.home / name).exists():
                    (self.home / name / "removed").touch()
                return 0, name, ""
        return 64, "", "unknown\n"

    def run(self, options: list[str]) -> Answer:
        value = {word: options[at + 1] for at, word in enumerate(options) if word.startswith("--")}
        folder = self.home / value["--name"]
        folder.mkdir()
        if "--detach" in options:
            port = value["--publish"].split(":")[1] if "--publish" in value else ""
            return self.start(folder, port, " ".join(options))
        if "/opt/builder-program" in options:
            return 0, self.kept("program"), ""
        probe = options[options.index("-c") + 3]
        rank = next((word for word in options if word.startswith("RANK=")), "")
        answers = json.loads(self.kept("probes.json"))
        answer = answers.get(f"{probe} {rank}", answers.get(probe))
        if answer == "hang":
            (folder / "pid").write_text(str(os.getpid()))
            time.sleep(60)
        if "exit" in answer:
            return int(answer["exit"]), "", answer["said"] + "\n"
        return 0, f"noise\n@builder-probe {json.dumps(answer)}\n", ""

    def start(self, folder: Path, port: str, told: str) -> Answer:
        faults = (self.home / "server").read_text().split(",") if (self.home / "server").exists() else []
        if "does not start" in faults:
            return 125, "", "docker: Error response from daemon: could not select device driver\n"
        port = port or re.findall(r"--port (\d+)", told + " --port 0")[0]
        if self.threads is not None:
            return self.thread(folder, int(port), [fault for fault in faults if fault])
        command = f"{sys.executable} -S {SERVER} {port} {' '.join(repr(fault) for fault in faults if fault)}"
        if "ray start --address" in told:
            command = "sleep 60"
        script = f"{command} >{folder}/log 2>&1 & echo $! >{folder}/new; mv {folder}/new {folder}/pid; wait $!"
        script += f"; echo $? >{folder}/end; mv {folder}/end {folder}/code"
        none = subprocess.DEVNULL
        subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=none, stderr=none)
        while not (folder / "pid").exists():
            time.sleep(0.01)
        return 0, "0123456789ab\n", ""

    def thread(self, folder: Path, port: int, faults: list[str]) -> Answer:
        from tests.unit.smoke import openai_server

        assert self.threads is not None
        (folder / "log").write_text(openai_server.log(faults))
        if "dies" in faults:
            (folder / "code").write_text("1")
        else:
            server = self.threads[folder.name] = openai_server.make(port, *faults)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return 0, "0123456789ab\n", ""

    def stop(self, name: str, patience: float) -> None:
        folder = self.home / name
        if self.threads is not None:
            if (server := self.threads.pop(name, None)) is not None:
                server.shutdown()
                server.server_close()
                (folder / "code").write_text("137" if "stubborn" in server.bad else "0")  # type: ignore[attr-defined]
            return
        if not (folder / "pid").exists():
            return
        pid = int((folder / "pid").read_text())
        if not (folder / "log").exists():
            # In the foreground: its `docker run` ends with it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return
        for wanted, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 10.0)):
            end = time.monotonic() + seconds
            if (folder / "code").exists():
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, wanted)
            while time.monotonic() < end and not (folder / "code").exists():
                time.sleep(0.01)


if __name__ == "__main__":
    status, out, said = FakeDocker(Path(os.environ["FAKE_DOCKER"]), bool(os.environ.get("FAKE_PEER")))(*sys.argv[1:])
    sys.stdout.write(out)
    sys.stderr.write(said)
    sys.exit(status)
