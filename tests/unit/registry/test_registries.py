"""The configuration file registries.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.errors import InvalidError
from builder.registry.config import RegistriesConfig
from tests.support.errors import fails


class TestConfiguration:
    def load(self, folder: Path, text: str) -> RegistriesConfig:
        path = folder / "registries.yaml"
        path.write_text(text)
        return RegistriesConfig.load(path)

    def test_only_loopback_and_insecure_registries_go_without_tls(self, tmp_path: Path) -> None:
        config = self.load(tmp_path, "lan.example:5000:\n  insecure: true\n")
        bases = {name: config.origin(name).base for name in (
            "docker.io", "nvcr.io", "localhost:5000", "127.0.0.1:5000", "[::1]:5000", "lan.example:5000", "lan.example",
            "localhost.evil.example", "127.0.0.1.evil.example",
        )}  # fmt: skip
        assert bases == {
            "docker.io": "https://registry-1.docker.io",
            "nvcr.io": "https://nvcr.io",
            "localhost:5000": "http://localhost:5000",
            "127.0.0.1:5000": "http://127.0.0.1:5000",
            "[::1]:5000": "http://[::1]:5000",
            "lan.example:5000": "http://lan.example:5000",
            "lan.example": "https://lan.example",
            "localhost.evil.example": "https://localhost.evil.example",
            "127.0.0.1.evil.example": "https://127.0.0.1.evil.example",
        }

    def test_mirrors(self, tmp_path: Path) -> None:
        text = "docker.io:\n  mirror: [lan.example:5000/hub, b.example]\nlan.example:5000: {insecure: true}\n"
        found = self.load(tmp_path, text).endpoints("docker.io")
        assert [(one.base, one.repository("library/ubuntu")) for one in found] == [
            ("http://lan.example:5000", "hub/library/ubuntu"),
            ("https://b.example", "library/ubuntu"),
            ("https://registry-1.docker.io", "library/ubuntu"),
        ]

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("nvcr.io:\n  mirror: [a.example\n", 3),
            ("a.io: {}\nnvcr.io:\n  insecure: maybe\n", 3),
            ("a.io: {}\nnvcr.io:\n  insecur: true\n", 3),
            ("nvcr.io:\n  mirror:\n    - a.example\n    - https://b.example\n", 4),
            ("nvcr.io:\n  mirror: [a.example/../x]\n", 2),
            ("\nhttps://nvcr.io: {}\n", 2),
            ("nvcr.io: {}\nnvcr.io: {insecure: true}\n", 2),
            ("- nvcr.io\n", 1),
            ("registry-1.docker.io: {mirror: [a.example]}\n", 1),
            ("nvcr.io: {}\na.io:\n  mirror: [index.docker.io/x]\n", 3),
            ("nvcr.io: &a\n  again: *a\n", 2),
        ],
    )
    def test_errors_name_the_line(self, tmp_path: Path, text: str, line: int) -> None:
        with pytest.raises(InvalidError) as caught:
            self.load(tmp_path, text)
        assert caught.value.where == f"{tmp_path / 'registries.yaml'}:{line}"

    def test_registries_on_this_machine_may_use_tls(self, tmp_path: Path) -> None:
        text = "localhost:5000: {insecure: false}\nlocalhost:5001: {mirror: [a.io]}\n"
        config = self.load(tmp_path, text)
        assert config.origin("localhost:5000").base == "https://localhost:5000"
        assert config.origin("localhost:5001").base == "http://localhost:5001"

    def test_errors_use_the_terms_of_yaml(self, tmp_path: Path) -> None:
        with fails(InvalidError, "registries-file-invalid") as caught:
            self.load(tmp_path, "a.io: {mirror: b.io}")
        assert caught.value.what.startswith("a.io.mirror: Input should be a list")
        with fails(InvalidError, "registries-file-invalid") as caught:
            self.load(tmp_path, "index.docker.io: {mirror: [b.io]}")
        assert caught.value.what.startswith("index.docker.io: write docker.io")

    @pytest.mark.parametrize(
        "text",
        [
            "\x00",
            "a: !!python/object:os.system {}",
            "? [a]\n: b",
            "{" * 5000,
            "5: {}",
            "é: {}",
            "a: &a\n  mirror: [*a]",
        ],
    )
    def test_malformed_files_are_invalid(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(InvalidError):
            self.load(tmp_path, text)

    def test_path_of_the_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("BUILDER_REGISTRIES", raising=False)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        assert len(RegistriesConfig.load().endpoints("a.io")) == 1
        (tmp_path / "builder").mkdir()
        (tmp_path / "builder" / "registries.yaml").write_text("a.io: {mirror: [b.io]}\n")
        assert len(RegistriesConfig.load().endpoints("a.io")) == 2
        monkeypatch.setenv("BUILDER_REGISTRIES", str(tmp_path / "absent"))
        with pytest.raises(InvalidError):
            RegistriesConfig.load()
