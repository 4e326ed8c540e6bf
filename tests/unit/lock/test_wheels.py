from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version
from pydantic import ValidationError

from builder.errors import InvalidError, PinError
from builder.lock.wheels import best_wheel, parse_pins, resolve_wheels, target_tags
from builder.model.lock import WheelRequest
from tests.support.errors import fails
from tests.support.hostile import limit
from tests.support.http_server import Server, body, serving

ARM = target_tags("3.13", "aarch64-manylinux_2_39")


@pytest.mark.parametrize(
    ("files", "best"),
    [
        (["a-1-py3-none-any.whl", "a-1-cp313-cp313-manylinux_2_28_aarch64.whl"], 1),
        (["a-1-cp312-abi3-manylinux_2_17_aarch64.whl", "a-1-cp39-abi3-manylinux_2_34_aarch64.whl"], 0),
        (["a-1-cp313-cp313-manylinux2014_aarch64.whl", "a-1-cp313-cp313-manylinux_2_28_aarch64.whl"], 1),
        (["a-1-cp38-abi3-manylinux_2_35_aarch64.whl", "a-1-cp38-abi3-manylinux_2_35_x86_64.whl"], 0),
        (["a-1-py3-none-any.whl", "a-1-1-py3-none-any.whl"], 1),
        (["a-2-py3-none-any.whl", "a-1.tar.gz", "a-1-py2.py3-none-any.whl"], 2),
    ],
)
def test_the_file_that_fits_best(files: list[str], best: int) -> None:
    assert best_wheel(files, Version("1"), ARM) == files[best]


@pytest.mark.parametrize(
    "file",
    [
        "a-1-cp313-cp313t-manylinux_2_28_aarch64.whl",  # free-threaded
        "a-1-cp313-cp313-manylinux_2_40_aarch64.whl",  # newer glibc
        "a-1-cp313-cp313-musllinux_1_2_aarch64.whl",
        "a-1-cp312-cp312-manylinux_2_28_aarch64.whl",
        "a-1-cp314-abi3-manylinux_2_28_aarch64.whl",
        "a-1-cp313-cp313-macosx_11_0_arm64.whl",
        f"a-{'1' * 5000}-py3-none-any.whl",
    ],
)
def test_files_that_do_not_fit(file: str) -> None:
    assert best_wheel([file], Version("1"), ARM) is None


@pytest.mark.parametrize("platform", ["windows", "aarch64-manylinux_2_99999999"])
def test_an_unknown_platform_is_refused(platform: str) -> None:
    with limit(), fails(InvalidError, "wheel-platform-unknown"):
        target_tags("3.13", platform)


def test_a_python_whose_version_is_too_high_to_count_to_is_refused() -> None:
    with pytest.raises(ValidationError, match="python"):
        WheelRequest(requirements=(), python="3.99999999", platform="aarch64-manylinux_2_39")


def test_pins_are_read_with_normalised_names() -> None:
    text = "# a comment\nFoo_Bar==1.0+cu130\n--extra\nb==2 ; python_version > '3'\n"
    assert list(parse_pins(text)) == [("foo-bar", Version("1.0+cu130")), ("b", Version("2"))]


# --- uv against an index of our own ---


def make_wheel(name: str, version: str, requires: tuple[str, ...] = ()) -> bytes:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", "Provides-Extra: x"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        folder = f"{name}-{version}.dist-info"
        archive.writestr(f"{folder}/METADATA", "\n".join(lines) + "\n")
        archive.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{folder}/RECORD", "")
    return data.getvalue()


WHEELS = {
    "app-1-py3-none-any.whl": make_wheel("app", "1", ("lib", 'more>=1; extra == "x"')),
    "lib-1-py3-none-any.whl": make_wheel("lib", "1"),
    "lib-2-cp313-cp313-manylinux_2_28_aarch64.whl": make_wheel("lib", "2"),
    "lib-2-cp312-cp312-manylinux_2_28_aarch64.whl": make_wheel("lib", "2") + b" ",
    "more-1-py3-none-any.whl": make_wheel("more", "1", ("lib",)),
}


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    with serving() as server:
        for project in ("app", "lib", "more"):
            publish(server, project)
        yield f"{server.address}/simple/"


def publish(server: Server, project: str) -> None:
    files = {file: data for file, data in WHEELS.items() if file.startswith(f"{project}-")}
    hashes = {file: hashlib.sha256(data).hexdigest() for file, data in files.items()}
    links = [f'<a href="/files/{file}#sha256={value}">{file}</a><br>' for file, value in hashes.items()]
    server.on(f"/simple/{project}/", body(f"<html>{''.join(links)}</html>".encode(), content_type="text/html"))
    for file, data in files.items():
        server.on(f"/files/{file}", body(data, ranges=False))


def request(*requirements: str, constraints: tuple[str, ...] = (), dependencies: bool = True) -> WheelRequest:
    return WheelRequest(
        requirements=requirements,
        constraints=constraints,
        python="3.13",
        platform="aarch64-manylinux_2_39",
        dependencies=dependencies,
    )


def test_a_resolution_gives_exactly_one_file_each_with_its_real_size(index: str) -> None:
    wheels = resolve_wheels(request("app"), (), index)
    assert [wheel.file for wheel in wheels] == [
        "app-1-py3-none-any.whl",
        "lib-2-cp313-cp313-manylinux_2_28_aarch64.whl",
    ]
    assert [wheel.size for wheel in wheels] == [len(WHEELS[wheel.file]) for wheel in wheels]
    assert wheels[1].sha256 == hashlib.sha256(WHEELS[wheels[1].file]).hexdigest()


def test_constraints_bind_and_dependencies_can_be_left_out(index: str) -> None:
    assert [wheel.version for wheel in resolve_wheels(request("app", constraints=("lib<2",)), (), index)] == ["1", "1"]
    assert [wheel.name for wheel in resolve_wheels(request("app", dependencies=False), (), index)] == ["app"]


def test_present_packages_constrain_the_resolution_and_are_omitted(index: str) -> None:
    present = resolve_wheels(request("app", constraints=("lib<2",)), (), index)
    assert [wheel.name for wheel in resolve_wheels(request("app[x]"), present, index)] == ["more"]


def test_an_unresolvable_request_is_an_error_with_its_cause(index: str) -> None:
    with fails(PinError, "lock-wheels-unresolvable") as caught:
        resolve_wheels(request("app", constraints=("lib>3",)), (), index.replace("//", "//me:secret@"))
    assert "lib>3" in caught.value.cause
    assert "requests.yaml" in caught.value.next
    assert "secret" not in str(caught.value)
