"""Damaged texts that are no file of a project: token servers' answers, logins, configuration of pip, uv and apt; and
conditions, parameters and templates that are valid YAML. Each is read or refused, in time."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.errors import BuilderError
from builder.inputs import mirrors
from builder.lock.debs import parse_uris
from builder.model.layer import Layer
from builder.model.yamlfile import build
from builder.plan.template import render_dockerfile
from builder.plan.use import Scope, Use, parameters
from builder.project import LayerSource
from builder.registry.auth import Credentials, Login
from tests.support.fuzz import SEED, times
from tests.support.hostile import limit
from tests.support.http_registry import Answer, client, image_manifest, serving
from tests.support.mutate import Mutator
from tests.support.project import sample

TOKEN = json.dumps({"token": "abc.def", "access_token": "x", "expires_in": 300, "issued_at": "2026-01-01T00:00:00Z"})
AUTH = base64.b64encode(b"user:password").decode()
LOGINS = json.dumps(
    {
        "auths": {"docker.io": {"auth": AUTH}, "x.lan/team": {"username": "u", "password": "p"}, "y.lan": None},
        "credHelpers": {"z.lan": ""},
        "credsStore": "",
    }
)


def ends(run: Callable[[Any], object], data: Any) -> str:
    """How reading ends: with a value, or with the id of an error."""
    try:
        with limit():
            run(data)
    except BuilderError as error:
        return error.id
    return "read"


def test_answers_of_token_servers() -> None:
    found: Counter[str] = Counter()
    manifest = image_manifest(b"{}")
    with serving() as server:
        challenge = {"WWW-Authenticate": f'Bearer realm="{server.url}/token",service="a",scope="repository:a:pull"'}
        server.on("GET", "/v2/a/manifests/1", lambda asked: answer(asked.headers, manifest, challenge))
        for data in Mutator(TOKEN, "json", SEED).some(times(60)):
            server.on("GET", "/token", Answer(200, data))
            credentials = Credentials((), {server.host: Login("user", "password")})
            registry = client(credentials)
            found[ends(registry.manifest, server.ref("a:1"))] += 1
    assert set(found) <= {"read", "token-missing"}
    assert len(found) == 2


def answer(headers: dict[str, str], body: bytes, challenge: dict[str, str]) -> Answer:
    return Answer(200, body) if headers.get("Authorization", "").startswith("Bearer ") else Answer(401, b"", challenge)


def test_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no helper can run
    path, found = tmp_path / "config.json", Counter[str]()
    places = (("docker.io", "a/b"), ("x.lan", "team/app"), ("y.lan", ""), ("z.lan", ""))
    for data in Mutator(LOGINS, "json", SEED).some(times(300)):
        path.write_bytes(data)
        logins = Credentials((path,))
        found[ends(lambda made: [(login := made.get(*place)) and login.basic for place in places], logins)] += 1
    assert found["read"] > 50
    assert len(found) > 2


PIECES = (
    *(
        "[",
        "]",
        "=",
        "\n",
        " ",
        '"',
        "'''",
        "http://[",
        "{",
        "[[",
        "%(x)s",
        "\0",
        "é",
        ":",
        "|",
        "1" * 5000,
        "[" * 2000,
    ),
    *("\r", "\n \n", "https://x:99999/", "\\", "[DEFAULT]\n", "{{", "}}", "{%", "%}", "|sh" * 200, "|sh", "~a" * 200),
    *("{% for x in a %}", "{% endfor %}", "{% set a = 'x' %}", "not " * 300, ".a" * 200, "(", "a", "{% if a %}" * 90),
)


def changed(pick: random.Random, text: str) -> str:
    """The text with one to four pieces put in, left out or replaced."""
    for _ in range(pick.choice((1, 1, 2, 4))):
        at = pick.randrange(len(text) + 1)
        text = text[:at] + pick.choice(("", *PIECES)) + text[at + pick.choice((0, 0, 1, 9)) :]
    return text


MACHINE: dict[str, Callable[[str], Any]] = {
    "[global]\nindex-url = https://u:p@x.lan/\nextra-index-url =\n  https://a/\n": lambda text: mirrors.wheel_indexes(
        {"UV_INDEX": text}, [], [text]
    ),
    'index-url = "https://a/"\n[[index]]\nurl = "https://d/"\ndefault = true\n': lambda text: mirrors.wheel_indexes(
        {}, [text], []
    ),
    "Types: deb\nURIs: https://a/\nSuites: trixie\nComponents: main\n\n": mirrors.roots_of_sources,
    "deb [arch=arm64] https://a/ trixie main\n": mirrors.roots_of_sources,
    "Debian|Debian|https://a/debian\n": mirrors.roots_of_targets,
    "Suite: trixie\nBaseURI: https://a/\n": mirrors.roots_of_template,
    "'http://x/a_1_arm64.deb' a_1%3a2_arm64.deb 100 SHA256:x\n": lambda text: [mirrors.redact(text), parse_uris(text)][
        1
    ],
}


@pytest.mark.parametrize("text", MACHINE)
def test_the_configuration_of_a_machine(text: str) -> None:
    pick, read = random.Random(SEED), MACHINE[text]
    for _ in range(times(150)):
        with limit():
            for url in read(changed(pick, text)):
                mirrors.redact(str(url))


TEMPLATE = (
    "FROM x AS {{ id }}\n{% for word in params.words %}RUN {{ word | sh }}\n{% endfor %}"
    "{% if a.b %}ENV A={{ a.b ~ 'x' | dockerfile }}\n{% endif %}CMD {{ params.words | exec_form }}\n"
)


def test_templates() -> None:
    pick, found = random.Random(SEED), Counter[str]()
    values = {"id": "one", "a": {"b": "c"}, "params": {"words": ["a", "b c"]}}
    for _ in range(times(300)):
        found[ends(lambda text: render_dockerfile(text, values, "here"), changed(pick, TEMPLATE))] += 1
    assert min(found["read"], found["template-broken"]) > times(300) / 100


LAYER = {
    "name": "one",
    "title": "One",
    "producer": "config",
    "parameters": {
        "text": {"type": "text", "pattern": "[a-z]{1,9}", "default": "a", "help": "h"},
        "flag": {"type": "flag", "default": True, "help": "h"},
        "number": {"type": "integer", "default": 1, "help": "h"},
        "words": {"type": "list", "choices": ["a", "b"], "default": ["a"], "help": "h"},
    },
    "needs": [{"when": {"base.vllm": ">=0.21,<0.24", "params.flag": True}, "why": "w"}],
    "env": [
        {"name": "A", "value": "{{ params.text }}", "when": [{"params.text": {"not": "b"}}, {"lock": "tiny-root"}]}
    ],
    "labels": [
        {"name": "b", "value": "{{ base.python }}", "when": {"base.site": "known", "recipe.layers": "compiled"}}
    ],
}
GIVEN = {"text": "a", "flag": "yes", "number": "7", "words": "a,b"}


def test_conditions_and_parameters(tmp_path: Path) -> None:
    project = sample().write(tmp_path)
    base, recipe = project.base("tiny"), project.recipe("tiny")

    def use(item: tuple[Any, Any]) -> None:
        layer = build(item[0], Layer, where="layer.yaml")
        source = LayerSource(layer, {}, tmp_path)
        scope = Scope(project, Use("one", source, parameters(layer, item[1], "recipe"), "recipe"), base, recipe)
        for part in (*layer.env, *layer.labels):
            if scope.holds(part.when):
                scope.text(part.value)
        for need in layer.needs:
            scope.holds(need.when)

    found: Counter[str] = Counter()
    layers, given = Mutator(json.dumps(LAYER), "json", SEED), Mutator(json.dumps(GIVEN), "json", SEED)
    for number in range(times(80)):
        try:
            one = json.loads(layers.changed()) if number % 3 else LAYER
            values = GIVEN if number % 3 else dict(json.loads(given.changed()))
        except ValueError:
            continue
        found[ends(use, (one, values))] += 1
    assert min(found["read"], found["value-invalid"], found["parameter-value-invalid"]) > times(80) / 60
