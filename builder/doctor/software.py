"""Checks of what runs and builds images: docker, its GPU runtime, engines, registries, tokens, front ends."""

from __future__ import annotations

import json

from builder.doctor.question import Answer, Question


def docker(q: Question) -> Answer:
    got = q.host.run("docker", "info", "--format", "{{json .}}")
    if got is None:
        return Answer("docker", "unknown", "docker is not installed here", "install docker to run images")
    if "permission denied" in got.text:
        fix = "sudo usermod -aG docker $USER && newgrp docker"
        return Answer("docker", "failed", "docker.sock: permission denied", fix)
    if got.code:
        return Answer("docker", "failed", "the docker daemon does not answer", "sudo systemctl start docker")
    return Answer("docker", "ok", "docker answers")


def gpu_runtime(q: Question) -> Answer:
    got = q.host.run("docker", "info", "--format", "{{json .}}")
    try:
        info = json.loads(got.text) if got is not None and not got.code else None
    except ValueError:
        info = None
    if not isinstance(info, dict):
        return Answer("gpu-runtime", "unknown", "docker does not say which runtimes it has")
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
    """Only a machine that compiles layers needs one; a pulled image does not."""
    found = []
    for name, words in (("docker", ("docker", "buildx", "version")), ("buildah", ("buildah", "--version"))):
        got = q.host.run(*words)
        if got is not None and not got.code and got.text.strip():
            found.append(f"{name} ({got.text.strip().splitlines()[0]})")
    if found:
        return Answer("engine", "ok", f"layers can be compiled with {' or '.join(found)}")
    message = "neither docker with buildx nor buildah is here: no layer can be compiled"
    return Answer("engine", "warning", message, "apt-get install buildah; builder engines says more")


def registry(q: Question) -> Answer | None:
    """Whether docker has a login for NVIDIA's registry. Only whether: nothing of it is read further."""
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
    fix = "where it is refused: docker login nvcr.io, user $oauthtoken, an NGC API key as password"
    return Answer("registry", "warning", "docker has no login for nvcr.io: a pull may be refused with 401", fix)


def front_end(q: Question) -> Answer | None:
    """A front end in a container does not reach the server by localhost."""
    got = q.host.run("docker", "ps", "--format", "{{.Names}}\t{{.Image}}\t{{.Networks}}")
    rows = [line.split("\t") for line in got.text.splitlines()] if got is not None and not got.code else []
    fronts = [row for row in rows if len(row) == 3 and "open-webui" in row[1]]
    if not fronts:
        return None
    name, _, networks = fronts[0]
    if networks == "bridge":
        server = q.recipe.name if q.recipe else "the server's container"
        fix = f"docker network create ai; connect {name} and {server} to it; then the URL is http://{server}:8000/v1"
        return Answer("front-end", "warning", f"{name} is on the default bridge: localhost is itself there", fix)
    return Answer("front-end", "ok", f"{name} is on {networks}")
