"""`verify --policy` and `run --policy` with an image in a real registry."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import Cli
from tests.support.signed import Signed
from tests.support.statements import new_key

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed"),
]


@pytest.fixture
def signed(online: Cli, host: str, request: pytest.FixtureRequest) -> Signed:
    return Signed(online, host, "".join(letter for letter in request.node.name.lower() if letter.isalnum()))


def policy(image: Signed, /, **rules: Any) -> str:
    path = image.cli.folder / "policy.yaml"
    path.write_text(yaml.safe_dump(rules))
    return str(path)


def test_what_was_not_rebuilt_does_not_count(signed: Signed) -> None:
    own = signed.public.name
    signature = [{"key": own, "about": ["image", "provenance", "sbom"]}]
    met = signed.verify("--no-rebuild", "--policy", policy(signed, signed=signature, bases=["tiny"]))
    assert (met.code, met.out) == (0, "signed\n"), met.err
    assert "policy: sbom signed by " in met.err and "policy: base tiny: tiny" in met.err

    both = policy(signed, signed=signature, rebuilt={"count": 2, "keys": [own, signed.other_public.name]})
    unmet = signed.verify("--no-rebuild", "--policy", both)
    unmet.failed(4, "policy-unmet")
    assert "identical rebuilds: 0 of 2" in unmet.err
    for number, key in enumerate((signed.private, signed.other_private), 1):
        assert signed.verify("--attest", "--key", str(key)).code == 0
        done = signed.verify("--no-rebuild", "--policy", both)
        assert done.code == (0 if number == 2 else 4), done.err
        assert f"identical rebuilds: {number} of 2" in done.err


def test_a_signed_difference_stops_everybody(signed: Signed) -> None:
    rules = policy(signed, signed=[{"key": signed.public.name}], rebuilt={"keys": [signed.other_public.name]})
    assert signed.verify("--attest", "--key", str(signed.other_private)).code == 0
    assert signed.verify("--no-rebuild", "--policy", rules).code == 0
    # The same image is rebuilt from another plan: what is signed is a difference.
    signed.cli.small.files["recipes/tiny.yaml"]["env"]["LAST"] = "changed"
    differs = signed.cli("verify", signed.target, "--recipe", "tiny", "--attest", "--key", str(signed.other_private))
    assert differs.code == 8, differs.err
    done = signed.verify("--no-rebuild", "--policy", rules)
    done.failed(8, "policy-unmet")
    assert f"{signed.other_public.name} has signed that a rebuild differs" in done.err


def test_run_takes_the_image_that_was_checked(signed: Signed) -> None:
    rules = policy(signed, signed=[{"key": signed.public.name}])
    words = ("run", "--recipe", "tiny", "--image")
    done = signed.cli(*words, signed.target, "--policy", rules)
    assert done.code == 0 and signed.pinned in done.out, done.err
    signed.cli(*words, signed.target, "--policy", policy(signed, signed=[{"key": signed.other_public.name}])).failed(
        4, "policy-unmet"
    )
    signed.cli("run", "--recipe", "tiny", "--policy", rules).failed(2, "policy-without-image")


def test_one_key_under_two_names_counts_once(signed: Signed, tmp_path: Path) -> None:
    copy = signed.public.with_name("copy.pub")
    copy.write_bytes(signed.public.read_bytes())
    rules = policy(signed, rebuilt={"count": 2, "keys": [signed.public.name, copy.name]})
    signed.verify("--no-rebuild", "--policy", rules).failed(3, "policy-key-twice")


def test_a_key_that_is_missing(signed: Signed) -> None:
    rules = policy(signed, signed=[{"key": "gone.pub"}])
    signed.verify("--no-rebuild", "--policy", rules).failed(2, "key-unreadable")
    _, stranger = new_key(signed.cli.folder, "stranger")
    unmet = signed.verify("--no-rebuild", "--policy", policy(signed, signed=[{"key": stranger.name}]))
    unmet.failed(4, "policy-unmet")
    signed.verify("--no-rebuild").failed(2, "verify-checks-nothing")


def test_show_claims_what_is_signed_and_no_more(signed: Signed) -> None:
    def shown(*keys: Path) -> dict[str, Any]:
        words = [word for key in keys for word in ("--signed-by", str(key))]
        done = signed.cli("show", signed.target, "--json", *words)
        assert done.code == 0, done.err
        return dict(json.loads(done.out))

    assert shown()["score"] == shown(signed.other_public)["score"] == "unpinned"
    assert shown(signed.public)["score"] == "version-identical"
    attest = ("--attest", "--key", str(signed.other_private), "--vary", "umask,seed", "--trust-plan")
    assert signed.verify(*attest).code == 0
    found = shown(signed.other_public)
    assert found["score"] == "bit-identical"
    assert all({"umask 077", "again"} <= {*layer["variations"]} for layer in found["layers"]), found
    plain = signed.cli("show", signed.target, "--signed-by", str(signed.other_public))
    assert plain.out.startswith(f"{signed.pinned}: bit-identical\n") and "6 variations" in plain.out
    signed.cli("show", "tiny", "--signed-by", str(signed.public)).failed(2, "show-keys-without-image")
