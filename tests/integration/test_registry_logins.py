"""Logins against Debian's docker-registry and its own checks of passwords and signed tokens, through the command line:
where a login may stand, what a wrong one gives, and that no secret is shown and nothing written."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.registry.auth import Credentials, Login
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from tests.support.cli import run_here
from tests.support.project import vendor_base, write_files
from tests.support.registry import Images, is_installed, running
from tests.support.tokens import Tokens, serving_tokens

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(
        not (is_installed() and shutil.which("openssl")), reason="docker-registry or openssl is not installed"
    ),
]
SECRET = "s3cret-of-the-user"
# bcrypt of SECRET, as htpasswd -B writes it.
HTPASSWD = "me:$2y$05$eRxSW4M0b7E/WStBoaQjG.bahjf4JAtVBJ5rfndKrQGO76PK6/Fgi\n"
AUTH = base64.b64encode(f"me:{SECRET}".encode()).decode()
WRONG = base64.b64encode(b"me:wrong").decode()
HELPER = f"""#!/bin/sh
cat > /dev/null
echo {SECRET} >&2
echo '{{"Username": "me", "Secret": "{SECRET}"}}'
"""


@dataclass
class User:
    """A user with a project of one base, and a home. arm: the digest of the base's image."""

    folder: Path
    host: str
    arm: str

    def write(self, files: dict[str, Any]) -> None:
        """Files below the user's home, the host's name for HOST."""
        text = json.dumps(files).replace("HOST", self.host)
        write_files(self.folder / "home", json.loads(text))

    def lock(self, **environ: str) -> tuple[int, str]:
        """Pin the base: the exit code and the whole output. The pin is written only when the exit code is 0."""
        base = vendor_base(f"{self.host}/team/app:1", "", pin={"image": f"{self.host}/team/app:1"})
        write_files(self.folder, {"project/recipes/bases/vendor.yaml": base})
        file = self.folder / "project/recipes/bases/vendor.yaml"
        before = file.read_bytes()
        fixed = {
            "PATH": f"{self.folder}/home/bin:/usr/bin:/bin",
            "HOME": f"{self.folder}/home",
            "BUILDER_PROJECT": f"{self.folder}/project",
            "BUILDER_STORE": f"{self.folder}/store",
        }
        words = ("lock", "--update", "vendor", "--json")
        done = run_here(words, environ={**fixed, **environ}, folder=self.folder)
        said = done.out + done.err
        assert SECRET not in said and AUTH not in said and "Traceback" not in said
        if done.code == 0:
            assert yaml.safe_load(file.read_text())["pin"]["manifest"] == self.arm
        else:
            assert file.read_bytes() == before
            assert [path for path in file.parent.iterdir() if path != file] == []
        return done.code, said


def filled(host: str, folder: Path) -> User:
    """A user of a registry that now has an image."""
    known = Credentials(logins={host: Login("me", SECRET)})
    _, arm = Images(host, Registry(config=RegistriesConfig(), credentials=known)).multi("team/app", "1")
    return User(folder, host, arm)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user of a registry that demands a password."""
    folder = tmp_path_factory.mktemp("htpasswd")
    (folder / "htpasswd").write_text(HTPASSWD)
    with running(folder, {"htpasswd": {"realm": "basic", "path": str(folder / "htpasswd")}}) as host:
        yield filled(host, folder)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    with serving_tokens(tmp_path_factory.mktemp("tokens"), users={"me": SECRET}, identity=SECRET) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tokens: Tokens, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user of a registry that demands tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    with running(folder, tokens.auth) as host:
        yield filled(host, folder)


@pytest.fixture
def user(request: pytest.FixtureRequest, tmp_path: Path) -> User:
    """A user of the registry of the parameter, with an empty home."""
    one: User = request.getfixturevalue(request.param)
    return User(tmp_path, one.host, one.arm)


both = pytest.mark.parametrize("user", ["locked", "guarded"], indirect=True)
only_tokens = pytest.mark.parametrize("user", ["guarded"], indirect=True)


@both
@pytest.mark.parametrize(
    ("files", "environ"),
    [
        ({".docker/config.json": {"auths": {"HOST": {"auth": AUTH}}}}, {}),
        ({".docker/config.json": {"auths": {"https://HOST/v1/": {"auth": AUTH}, "a.io": None}}}, {}),
        ({".docker/config.json": {"auths": {"HOST": {}}, "credsStore": "test"}}, {}),
        ({".docker/config.json": {"credsStore": "absent", "credHelpers": {"HOST": "test"}}}, {}),
        ({"other/config.json": {"auths": {"HOST": {"auth": AUTH}}}}, {"DOCKER_CONFIG": "other"}),
        (
            {"auth.json": {"auths": {"HOST/team": {"auth": AUTH}, "HOST": {"auth": WRONG}}}},
            {"REGISTRY_AUTH_FILE": "auth.json"},
        ),
    ],
    ids=["file", "url", "store", "helper", "folder", "path"],
)
def test_places_of_a_login(user: User, files: dict[str, Any], environ: dict[str, str]) -> None:
    user.write({**files, "bin/docker-credential-test": HELPER})
    (user.folder / "home/bin/docker-credential-test").chmod(0o755)
    code, said = user.lock(**{name: f"{user.folder}/home/{value}" for name, value in environ.items()})
    assert code == 0, said


@both
@pytest.mark.parametrize("auth", [None, WRONG])
def test_no_login_or_a_wrong_one(user: User, auth: str | None) -> None:
    user.write({".docker/config.json": {"auths": {"HOST": {"auth": auth}} if auth else {}}})
    code, said = user.lock()
    assert code == 6
    assert f"docker login {user.host}" in said
    assert json.loads(said[: said.rindex("}") + 1])["failed"][0]["code"] == 6


@only_tokens
@pytest.mark.parametrize(("identity", "expected"), [(SECRET, 0), ("wrong", 6)])
def test_identity_tokens(user: User, tokens: Tokens, identity: str, expected: int) -> None:
    user.write({".docker/config.json": {"auths": {"HOST": {"identitytoken": identity}}}})
    tokens.asked.clear()
    assert user.lock()[0] == expected
    assert tokens.asked == [f"POST {200 if expected == 0 else 401}"]


@only_tokens
def test_anonymous_pulls(user: User, tokens: Tokens) -> None:
    tokens.anonymous = True
    try:
        assert user.lock()[0] == 0
    finally:
        tokens.anonymous = False


@only_tokens
def test_tokens_that_the_registry_refuses(user: User, tokens: Tokens) -> None:
    user.write({".docker/config.json": {"auths": {"HOST": {"auth": AUTH}}}})
    tokens.lifetime = -120  # They have run out when they are given.
    try:
        assert user.lock()[0] == 6
    finally:
        tokens.lifetime = 300
    assert user.lock()[0] == 0
