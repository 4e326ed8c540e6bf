"""The option tables list the options of each vLLM version, extracted from its source distribution."""

from __future__ import annotations

import ast
import gzip
import hashlib
import tarfile
from pathlib import Path

import pytest
from packaging.version import Version

from builder.errors import InvalidError
from builder.knowledge.extract import dump, extract
from builder.knowledge.pysource import Sources
from builder.knowledge.sdist import fetch_sdist
from builder.knowledge.table import FOLDER, load_table, versions
from tests.support.cache import SDISTS
from tests.support.errors import fails
from tests.support.limits import ends
from tests.support.nightly import nightly_but
from tests.support.tars import sdist

_OTHERS = {"0.20.1", "0.22.0", "0.25.0", "0.25.1", "0.26.0", "0.27.0", "0.28.0", "0.29.0", "0.30.0", "0.32.0"}
FACTS = tuple(version for version in versions() if version not in _OTHERS)


@pytest.mark.parametrize("version", FACTS)
def test_every_version_has_a_table(version: str) -> None:
    table = load_table(version)
    assert table is not None
    assert table.vllm == version
    assert len(table.flags) > 200
    assert len(table.env) > 200


@pytest.mark.parametrize("version", versions())
def test_writing_a_table_again_gives_the_committed_file(version: str) -> None:
    table = load_table(version)
    assert table is not None
    assert (FOLDER / f"{version}.yaml").read_text("utf-8") == dump(table)


def test_a_version_without_table_and_a_local_version() -> None:
    assert load_table("0.15.1") is None
    assert load_table("0.28.1rc1.dev437+ge962733e0") is None
    assert load_table("0.19.0+6bc3197f.nv26.04") == load_table("0.19.0")


@pytest.mark.parametrize(
    ("flag", "first"),
    [("linear-backend", "0.22.1"), ("moe-backend", "0.18.1"), ("omni", "0.20.0"), ("tool-call-parser", "0.18.1")],
)
def test_the_version_that_added_an_option(flag: str, first: str) -> None:
    having = [version for version in FACTS if (table := load_table(version)) and table.has_flag(flag)]
    assert having == list(FACTS[FACTS.index(first) :])


@pytest.mark.parametrize(
    ("variable", "last"),
    [
        ("VLLM_USE_FLASHINFER_MOE_FP4", "0.23.0"),
        ("VLLM_NVFP4_GEMM_BACKEND", "0.23.0"),
        ("VLLM_MXFP4_USE_MARLIN", "0.23.0"),
        ("VLLM_TEST_FORCE_FP8_MARLIN", "0.27.1"),
        ("VLLM_MARLIN_USE_ATOMIC_ADD", "0.33.0"),
    ],
)
def test_the_version_that_removed_a_variable(variable: str, last: str) -> None:
    having = [version for version in FACTS if (table := load_table(version)) and variable in table.env]
    assert having == list(FACTS[: FACTS.index(last) + 1])


@pytest.mark.parametrize("variable", ["VLLM_MXFP4_BACKEND", "VLLM_FP8_MOE_BACKEND", "VLLM_ATTENTION_BACKEND"])
def test_variables_that_no_version_has(variable: str) -> None:
    assert not [version for version in versions() if (table := load_table(version)) and variable in table.env]


def test_every_table_has_the_extras() -> None:
    for version in versions():
        table = load_table(version)
        assert table is not None
        assert {"audio", "bench", "fastsafetensors", "instanttensor", "otel", "runai"} <= table.extras.keys()
        assert {"soundfile", "mistral_common[audio]"} <= set(table.extras["audio"])
        assert ("extra-quant" in table.extras) == (Version(version) >= Version("0.24"))


def test_no_version_disables_speculation_by_batch_size() -> None:
    flag = "speculative-disable-by-batch-size"
    assert not [version for version in versions() if (table := load_table(version)) and table.has_flag(flag)]


def test_backend_names_are_matched_without_case_and_toggles_can_be_negated() -> None:
    table = load_table("0.20.0")
    assert table is not None
    assert table.accepts("attention-backend", "triton_attn")
    assert table.accepts("moe-backend", "marlin")
    assert not table.accepts("moe-backend", "garbage")
    assert table.has_flag("no-enable-chunked-prefill")
    assert not table.has_flag("no-headless")


@pytest.mark.parametrize("version", FACTS[:4])
def test_fp8_constants_of_the_versions_that_the_patch_knows(version: str) -> None:
    table = load_table(version)
    assert table is not None
    assert table.fp8_constants == ("CUTLASS_FP8_SUPPORTED", "CUTLASS_BLOCK_FP8_SUPPORTED")


def test_sources_follow_imports_and_resolve_literals() -> None:
    sources = Sources(
        {
            "p/a.py": b"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import Kind\nx: Kind = 1\n",
            "p/b.py": b"from typing import Literal\nMore = Literal['c']\nKind = Literal['a', 'b', More]\n",
        }
    )
    import ast

    hint = sources.hint("p/a.py", ast.Name("Kind"))
    assert hint.literals == ("a", "b", "c")
    assert hint.closed


def test_a_file_that_moved_is_an_error_not_an_empty_table(tmp_path: Path) -> None:
    broken = tmp_path / "x.tar.gz"
    broken.write_bytes(b"no archive")
    with pytest.raises(InvalidError):
        Sources.from_sdist(broken)
    with pytest.raises(InvalidError):
        Sources({}).text("vllm/envs.py")


@pytest.mark.parametrize(
    "data",
    [b"def (:", b"\xff", b"x = 1\0", b"(" * 100_000 + b")" * 100_000, b"x = " + b"-" * 50_000 + b"1", None],
    ids=["syntax", "not UTF-8", "NUL", "parentheses", "minus", "link"],
)
def test_malformed_modules_are_errors(tmp_path: Path, data: bytes | None) -> None:
    sources = Sources.from_sdist(sdist(tmp_path, {"v/vllm/envs.py": data}))
    with pytest.raises(InvalidError) as caught:
        sources.tree("vllm/envs.py")
    assert caught.value.id.startswith("sdist-file-")
    assert "vllm/envs.py" in str(caught.value)


def test_only_needed_members_are_read_and_their_size_is_limited(tmp_path: Path) -> None:
    wanted = {"v/setup.py": b"1", "v/vllm/a.py": b"2", "v/docker/Dockerfile": b"3", "v/requirements/cuda.txt": b"4"}
    others = {"v/vllm/../../b.py": b"", "/vllm/../c.py": b"", "v/tests/d.py": b"", "v/vllm/e.so": b"", "f.py": b""}
    assert sorted(Sources.from_sdist(sdist(tmp_path, {**wanted, **others})).files.values()) == [b"1", b"2", b"3", b"4"]
    with fails(InvalidError, "sdist-file-too-large"):
        Sources.from_sdist(sdist(tmp_path, {"v/vllm/big.py": b"#" * (17 << 20)}))
    info = tarfile.TarInfo("v/big.bin")
    info.size = 3 << 30
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(info.tobuf() + bytes(1 << 20)))
    with fails(InvalidError, "sdist-too-large"):
        Sources.from_sdist(tmp_path / "x.tar.gz")


@pytest.mark.network
def test_no_code_of_a_source_distribution_runs(tmp_path: Path) -> None:
    """The committed table is extracted again, from files that would leave a trace."""
    ran = tmp_path / "ran"
    version = "0.20.0"
    committed = load_table(version)
    assert committed is not None
    files = Sources.from_sdist(fetch_sdist(version, SDISTS, committed.sdist)).files
    evil = f"\nopen({str(ran)!r}, 'w').close()\n".encode()
    code = {f"v/{name}": data + evil if name.endswith(".py") else data for name, data in files.items()}
    exec(evil)
    ran.unlink()
    made = extract(version, sdist(tmp_path, dict(code)))
    assert made.model_copy(update={"sdist": committed.sdist}) == committed
    assert not ran.exists()


@pytest.mark.network
def test_a_damaged_download_is_fetched_again(tmp_path: Path) -> None:
    committed = load_table("0.18.1")
    assert committed is not None
    (tmp_path / "vllm-0.18.1.tar.gz").write_bytes(b"half")
    path = fetch_sdist("0.18.1", tmp_path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == committed.sdist
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


@pytest.mark.network
@pytest.mark.parametrize("version", nightly_but(("0.18.1", "0.20.0", "0.31.0", "0.33.0")))
def test_extracting_again_gives_the_committed_table(version: str) -> None:
    committed = load_table(version)
    assert committed is not None
    sdist = fetch_sdist(version, SDISTS, committed.sdist)
    assert extract(version, sdist) == committed


def test_names_that_name_each_other_are_read_in_time() -> None:
    """Eight levels of fifty names each were read 50 to the power of 8 times."""
    lines = [f"A{level} = Union[{', '.join([f'A{level + 1}'] * 50)}]" for level in range(9)]
    sources = Sources({"vllm/a.py": "\n".join([*lines, "A9 = str"]).encode()})
    ends(lambda: sources.hint("vllm/a.py", ast.Name("A0")))


def test_an_extended_header_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    """tarfile reads it into memory: 2 GB for a source distribution of 9 MB."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 30
    zeros = gzip.compress(bytes(64 << 20), 1)
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(header.tobuf()) + zeros * 16 + gzip.compress(bytes(1024)))

    def work() -> None:
        with fails(InvalidError, "sdist-unreadable"):
            Sources.from_sdist(tmp_path / "x.tar.gz")

    ends(work, memory=300 << 20)


def test_toggles_have_an_inverse_from_0_33_on() -> None:
    known = {version: load_table(version) for version in ("0.32.0", "0.33.0")}
    has = {version: table.has_flag("disable-log-outputs") for version, table in known.items() if table}
    assert has == {"0.32.0": False, "0.33.0": True}
