"""Container to text: a docker command, a compose file, a systemd unit or an environment file, each with its quoting."""

from __future__ import annotations

import re
import shlex
from typing import Any

from builder.serve.spec import Container, Mount

FORMATS = ("docker", "compose", "systemd", "env")

STOP_SECONDS = 120
"""How long docker waits for a stopped server before it kills it. Its own 10 s are short for vLLM, and the memory of a
killed server can be lost until the machine is started again."""
_RESTART_SECONDS = 15
"""Between the end of a server and its next start: the driver frees memory some seconds after the process ends."""

FRONT_END = "${OPEN_WEBUI_IMAGE:-ghcr.io/open-webui/open-webui:main}"


def docker_words(c: Container, *, detach: bool = True, restart: bool = True, home: str = "~") -> list[str]:
    """The arguments of `docker run`. restart: of a detached container. home: replaces a leading ~ of a host path."""
    words = ["docker", "run", "--name", c.name, "--gpus", "all", "--ipc", "host"]
    words += ["--detach"] if detach else ["--rm"]
    words += ["--restart", "unless-stopped"] if detach and restart else []
    words += ["--stop-timeout", str(STOP_SECONDS)]
    words += ["--publish", _published(c)] if c.ports else ["--network", "host"]
    words += ["--shm-size", c.shm_size] if c.shm_size else []
    words += ["--ulimit", "memlock=-1:-1"] if c.memlock else []
    words += [word for device in c.devices for word in ("--device", device)]
    words += ["--user", c.user] if c.user else []
    words += [word for name, value in c.env for word in ("--env", f"{name}={value}")]
    words += [word for name in c.secrets for word in ("--env", name)]
    words += [word for mount in c.mounts for word in ("--volume", bind(mount, home))]
    words += ["--entrypoint", c.entrypoint] if c.entrypoint else []
    return [*words, c.image, *c.command]


def docker_command(c: Container) -> str:
    """The docker command for a shell, one option on a line."""
    words = docker_words(c)
    lines: list[str] = []
    options = len(words) - len(c.command) - 1
    index = 2
    lines.append("docker run")
    while index < options:
        step = 1 if words[index] in ("--detach", "--rm") else 2
        lines.append(" ".join(shell(word) for word in words[index : index + step]))
        index += step
    lines.append(shell(c.image))
    rest = list(c.command)
    while rest:
        count = next((n for n in range(1, len(rest)) if rest[n].startswith("--")), len(rest))
        lines.append(" ".join(shell(word) for word in rest[:count]))
        rest = rest[count:]
    return " \\\n  ".join(lines) + "\n"


def shell(word: str) -> str:
    """One word for a shell; a leading ~/ becomes "$HOME"/."""
    if word.startswith("~/"):
        return '"$HOME"/' + shlex.quote(word[2:])
    return shlex.quote(word)


def compose(c: Container) -> str:
    """A compose file. `$` in values is doubled, because compose replaces variables.

    Its profile `front-end` adds Open WebUI on the same network, as spark-vllm-guide section 11 advises.
    """
    import yaml

    service: dict[str, Any] = {"image": _dollars(c.image), "container_name": c.name}
    service |= {"restart": "unless-stopped", "stop_grace_period": f"{STOP_SECONDS}s", "ipc": "host"}
    if c.ports:
        service["ports"] = [_published(c)]
    else:
        service["network_mode"] = "host"
    service |= {"shm_size": c.shm_size} if c.shm_size else {}
    service |= {"ulimits": {"memlock": {"soft": -1, "hard": -1}}} if c.memlock else {}
    service |= {"devices": [f"{device}:{device}" for device in c.devices]} if c.devices else {}
    service |= {"user": c.user} if c.user else {}
    # compose takes a name without a value from the environment of its own process.
    service["environment"] = [*(f"{name}={_dollars(value)}" for name, value in c.env), *c.secrets]
    service["volumes"] = [_compose_bind(mount) for mount in c.mounts]
    gpus = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    service["deploy"] = {"resources": {"reservations": {"devices": [gpus]}}}
    service |= {"entrypoint": [_dollars(c.entrypoint)]} if c.entrypoint else {}
    service |= {"command": [_dollars(word) for word in c.command]} if c.command else {}
    file: dict[str, Any] = {"services": {c.name: service}}
    if c.serves:
        file = {"services": {c.name: service, "front-end": _front_end(c)}, "volumes": {"front-end": {}}}
    return yaml.safe_dump(file, sort_keys=False, width=1000, allow_unicode=True)


def _front_end(c: Container) -> dict[str, Any]:
    """Open WebUI. Its localhost is its own container: it reaches the server by name, or through the host."""
    server = f"{c.name}:{c.ports[1]}" if c.ports else f"host.docker.internal:{c.port}"
    key = "${VLLM_API_KEY:-none}" if "VLLM_API_KEY" in c.secrets else "none"
    environment = [f"OPENAI_API_BASE_URL=http://{server}/v1", f"OPENAI_API_KEY={key}", "ENABLE_OLLAMA_API=false"]
    service: dict[str, Any] = {"image": FRONT_END, "profiles": ["front-end"], "restart": "unless-stopped"}
    service |= {"ports": ["3000:8080"], "volumes": ["front-end:/app/backend/data"]}
    # A large model takes longer to load than the ten seconds that Open WebUI waits for the list of models.
    service["environment"] = [*environment, "AIOHTTP_CLIENT_TIMEOUT_MODEL_LIST=30"]
    return service if c.ports else {**service, "extra_hosts": ["host.docker.internal:host-gateway"]}


def env_file(c: Container) -> str:
    """The container's environment for `docker run --env-file`. docker takes a name alone from its own environment."""
    return "".join(f"{line}\n" for line in (*(f"{name}={value}" for name, value in c.env), *c.secrets))


def systemd(c: Container, *, home: str) -> str:
    """A system unit that runs the container in the foreground. It reads secrets from /etc/builder/NAME.env.

    home: that of the user whose folders are mounted; %h of a system unit is root's.
    """
    words = docker_words(c, detach=False, home=home)
    start = " ".join(unit_word(word) for word in words)
    return f"""\
[Unit]
Description=vLLM: {c.name}
Wants=network-online.target
After=docker.service network-online.target
Requires=docker.service

[Service]
EnvironmentFile=-/etc/builder/{c.name}.env
ExecStartPre=-docker rm --force {c.name}
ExecStart={start}
ExecStop=docker stop {c.name}
Restart=always
RestartSec={_RESTART_SECONDS}
TimeoutStartSec=infinity
TimeoutStopSec={STOP_SECONDS + 30}

[Install]
WantedBy=multi-user.target
"""


def unit_word(word: str) -> str:
    """One word of a unit's command line: in double quotes, with %, $ and backslashes escaped."""
    if re.fullmatch(r"[A-Za-z0-9_@:=,./+-]+", word):
        return word
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"'


def _published(c: Container) -> str:
    assert c.ports is not None
    return (f"{c.listen}:" if c.listen else "") + f"{c.ports[0]}:{c.ports[1]}"


def bind(mount: Mount, home: str) -> str:
    """A mount as docker's `HOST:CONTAINER[:ro]`. home: replaces a leading ~ of a host path."""
    host = home + mount.host[1:] if mount.host.startswith("~/") else mount.host
    return f"{host}:{mount.container}" + (":ro" if mount.read_only else "")


def _compose_bind(mount: Mount) -> str:
    host = "${HOME}" + _dollars(mount.host[1:]) if mount.host.startswith("~/") else _dollars(mount.host)
    return f"{host}:{_dollars(mount.container)}" + (":ro" if mount.read_only else "")


def _dollars(text: str) -> str:
    return text.replace("$", "$$")
