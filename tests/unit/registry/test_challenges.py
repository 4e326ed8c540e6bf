"""What a registry asks for: the header WWW-Authenticate."""

from __future__ import annotations

import time

import pytest

from builder.registry.token import merge_scopes, parse_challenges

# What the three public registries answer to an anonymous GET of a manifest, as their documentation shows it.
CHALLENGES = {
    "docker.io": (
        'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/ubuntu:pull"',
        {
            "realm": "https://auth.docker.io/token",
            "service": "registry.docker.io",
            "scope": "repository:library/ubuntu:pull",
        },
    ),
    "nvcr.io": (
        'Bearer realm="https://nvcr.io/proxy_auth",scope="repository:nvidia/vllm:pull"',
        {"realm": "https://nvcr.io/proxy_auth", "scope": "repository:nvidia/vllm:pull"},
    ),
    "ghcr.io": (
        'Bearer realm="https://ghcr.io/token",service="ghcr.io",scope="repository:user/image:pull"',
        {"realm": "https://ghcr.io/token", "service": "ghcr.io", "scope": "repository:user/image:pull"},
    ),
}


class TestChallenges:
    @pytest.mark.parametrize("registry", CHALLENGES)
    def test_public_registries(self, registry: str) -> None:
        header, expected = CHALLENGES[registry]
        assert parse_challenges(header) == {"bearer": expected}

    @pytest.mark.parametrize(
        ("header", "expected"),
        [
            ("", {}),
            ("Basic", {"basic": {}}),
            ('Basic realm="a, b"', {"basic": {"realm": "a, b"}}),
            (
                'Basic realm="r", Bearer realm=t,service=s',
                {"basic": {"realm": "r"}, "bearer": {"realm": "t", "service": "s"}},
            ),
            (r'BEARER Realm = "a\"b"', {"bearer": {"realm": 'a"b'}}),
            ('realm="nobody"', {}),
            ('Bearer realm="unclosed', {"bearer": {"realm": ""}}),
            ("=,=,=", {}),
        ],
    )
    def test_shapes(self, header: str, expected: dict[str, dict[str, str]]) -> None:
        found = parse_challenges(header)
        assert {name: value for name, value in found.items() if name in ("basic", "bearer")} == expected

    def test_scopes_are_merged(self) -> None:
        ours = ("repository:a:pull,push", "repository:b:pull")
        assert merge_scopes(ours, "repository:a:pull,delete registry:catalog:*") == [
            "repository:a:pull,push,delete",
            "repository:b:pull",
            "registry:catalog:*",
        ]


def test_many_scopes_take_no_time() -> None:
    """Their merging is quadratic: 240 kB took 11 s."""
    scopes = " ".join(f"r:{number:x}" for number in range(40_000))
    begin = time.process_time()
    challenge = parse_challenges(f'Bearer realm="https://a/",scope="{scopes}"')["bearer"]
    merge_scopes(("repository:a:pull",), challenge.get("scope", ""))
    assert time.process_time() - begin < 1
