"""Checks of software: docker, its GPU runtime, engines, registry logins, HF_TOKEN, front ends."""

from __future__ import annotations

import json

from builder.doctor.question import Answer, Question
from builder.errors import EngineError


def docker(q: Question) -> Answer:
    try:
        info = q.host.docker_info()
    except EngineError as error:
        if error.id == "docker-unreachable" and q.host.run("docker", "--version") is None:
            return Answer("docker", "unknown", "docker is not installed here", "install docker to run images")
        return Answer("docker", "failed", error.what, error.next)
    return Answer("docker", "ok", f"docker {info.get('ServerVersion', 'of an unknown version')} answers")


def gpu_runtime(q: Question) -> Answer:
    try:
        info = q.host.docker_info()
    except EngineError:
        return Answer("gpu-runtime", "unknown", "docker does not list its runtimes")
    if "nvidia" in (info.get("Runtimes") or {}) or any("nvidia" in str(x) for x in info.get("DiscoveredDevices") or ()):
        return Answer("gpu-runtime", "ok", "docker has NVIDIA's runtime")
    fix = "install nvidia-container-toolkit; sudo nvidia-ctk runtime configure --runtime=docker; restart docker"
    return Answer("gpu-runtime", "failed", "docker has no NVIDIA runtime", fix)


def token(q: Question) -> Answer | None:
    if q.recipe is None or not q.recipe.model.gated:
        return None
    if q.host.env("HF_TOKEN"):
        return Answer("token", "ok", "HF_TOKEN is set")
    fix = "accept the licence on the model's page and set HF_TOKEN"
    return Answer("token", "failed", f"{q.recipe.model.id} is gated and HF_TOKEN is not set", fix)


def engine(q: Question) -> Answer:
    """Whether an engine can compile layers here. A machine that only runs images needs none."""
    found = []
    for name, words in (("docker", ("docker", "buildx", "version")), ("buildah", ("buildah", "--version"))):
        got = q.host.run(*words)
        if got is not None and not got.code and got.text.strip():
            found.append(f"{name} ({got.text.strip().splitlines()[0]})")
    if found:
        return Answer("engine", "ok", f"layers can be compiled with {' or '.join(found)}")
    message = "neither docker with buildx nor buildah is installed: no layer can be compiled"
    return Answer("engine", "warning", message, "apt-get install buildah; builder engines lists what is missing")


def registry(q: Question) -> Answer | None:
    """Whether docker's configuration has a login for NVIDIA's registry. The login itself is not used."""
    if q.base is None or q.base.pin is None or not q.base.pin.image.startswith("nvcr.io/"):
        return None
    folder = q.host.env("DOCKER_CONFIG") or f"{q.host.env('HOME') or '/root'}/.docker"
    text = q.host.read(f"{folder}/config.json")
    try:
        config = json.loads(text) if text else {}
    except ValueError:
        config = {}
    helpers = config.get("credHelpers") or {}
    if "nvcr.io" in (config.get("auths") or {}) or "nvcr.io" in helpers or config.get("credsStore"):
        return Answer("registry", "ok", "docker has a login for nvcr.io, or a store of logins")
    fix = "if a pull is refused: docker login nvcr.io, user $oauthtoken, an NGC API key as password"
    return Answer("registry", "warning", "docker has no login for nvcr.io: a pull may be refused with 401", fix)


def front_end(q: Question) -> Answer | None:
    """Whether a front end in a container can reach the server: its own localhost is not the server's."""
    try:
        found = [row for row in q.host.containers() if "open-webui" in row.image]
    except EngineError:
        return None
    if not found:
        return None
    front = found[0]
    if front.networks == ("bridge",):
        server = q.recipe.name if q.recipe else "the server's container"
        fix = f"docker network create ai; connect {front.name} and {server} to it; then the URL is http://{server}:8000/v1"
        message = f"{front.name} is on the default bridge: its localhost is the container itself"
        return Answer("front-end", "warning", message, fix)
    return Answer("front-end", "ok", f"{front.name} is on {','.join(front.networks)}")
