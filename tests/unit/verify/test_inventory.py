"""What is installed in an image, read from its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builder.errors import InvalidError, PinError
from builder.smoke.image.opened import open_image
from builder.verify import inventory
from builder.verify.inventory import image_inventory
from tests.support.errors import fails
from tests.support.images import layout, link, tar
from tests.support.limits import ends

SITE = "usr/lib/python3/dist-packages"


def purls(tmp_path: Path, *layers: dict[str, Any]) -> list[str]:
    image = open_image(layout(tmp_path / "image", [tar(files) for files in layers]))
    return [part.purl for part in image_inventory(image, "test", None).parts]


def status(*names: str, state: str = "install ok installed") -> bytes:
    rows = (f"Package: {name}\nStatus: {state}\nArchitecture: arm64\nVersion: 1:1.0\n words\n" for name in names)
    return "\n".join(rows).encode()


def metadata(name: str, version: str = "1.0") -> bytes:
    return f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nName: of the text\n".encode()


def test_packages_of_dpkg(tmp_path: Path) -> None:
    assert purls(tmp_path, {"var/lib/dpkg/status": status("a", "b")}) == [
        "pkg:deb/debian/a@1:1.0?arch=arm64",
        "pkg:deb/debian/b@1:1.0?arch=arm64",
    ]


def test_a_package_that_is_not_installed(tmp_path: Path) -> None:
    both = status("a") + b"\n" + status("b", state="deinstall ok config-files") + b"\n\n\nPackage: c\n\nVersion: 1\n"
    assert purls(tmp_path, {"var/lib/dpkg/status": both}) == ["pkg:deb/debian/a@1:1.0?arch=arm64"]


def test_packages_without_dpkg_itself(tmp_path: Path) -> None:
    files = {
        "var/lib/dpkg/status.d/tzdata": b"Package: tzdata\nVersion: 2\nArchitecture: all\n",
        "var/lib/dpkg/status.d/tzdata.md5sums": b"Package: no\nVersion: 2\n",
        "usr/lib/os-release": b'NAME="Ubuntu"\nID=ubuntu\n',
        "etc/os-release": link("../usr/lib/os-release"),
    }
    assert purls(tmp_path, files) == ["pkg:deb/ubuntu/tzdata@2?arch=all"]


def test_an_upper_layer_decides(tmp_path: Path) -> None:
    lower = {"var/lib/dpkg/status": status("a"), f"{SITE}/x-1.dist-info/METADATA": metadata("x")}
    upper = {"var/lib/dpkg/status": status("b"), f"{SITE}/.wh.x-1.dist-info": b""}
    assert purls(tmp_path, lower, upper) == ["pkg:deb/debian/b@1:1.0?arch=arm64"]


def test_python_distributions(tmp_path: Path) -> None:
    files = {
        f"{SITE}/One_Two-1.0.dist-info/METADATA": metadata("One_Two"),
        f"{SITE}/flat-1.0.egg-info": metadata("flat"),
        f"{SITE}/folder.egg-info/PKG-INFO": metadata("folder"),
        f"{SITE}/setuptools/_vendor/inner-1.0.dist-info/METADATA": metadata("inner"),
        f"{SITE}/setuptools/_vendor/x-packages/deep-1.0.dist-info/extra/METADATA": metadata("deep"),
        f"{SITE}/none-1.0.dist-info/METADATA": b"Metadata-Version: 2.4\n",
        "opt/venv/lib/python3.12/site-packages/venv_one-1.0.dist-info/METADATA": metadata("venv-one"),
        "opt/METADATA": metadata("no"),
    }
    assert purls(tmp_path, files) == [f"pkg:pypi/{name}@1.0" for name in ("one-two", "flat", "folder", "venv-one")]


def test_hostile_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "var/lib/dpkg/status": b"\xff\x00Package: a\n" * 1000,
        f"{SITE}/a-1.dist-info/METADATA": link("/var/lib/dpkg/status"),
        f"{SITE}/b-1.dist-info/METADATA": link("METADATA"),
        f"{SITE}/c-1.dist-info/METADATA": "Name: café <\x1b>\nVersion: 1 \u2028 2\n".encode(),
        "etc/os-release": b"ID=../../x\n",
    }
    assert purls(tmp_path, files) == ["pkg:pypi/caf%c3%a9%20%3c%1b%3e@1%20%E2%80%A8%202"]
    monkeypatch.setattr(inventory, "_MOST", 1)
    with fails(InvalidError, "image-packages-too-many"):
        purls(tmp_path / "more", {"var/lib/dpkg/status": status("a", "b")})


def test_more_packages_than_a_document_can_list_in_seconds_are_refused(tmp_path: Path) -> None:
    with fails(InvalidError, "image-packages-too-many"):
        purls(tmp_path, {"var/lib/dpkg/status": status(*(f"p{number}" for number in range(3001)))})


def test_many_packages_share_one_large_file(tmp_path: Path) -> None:
    names = [f"p{number:05}" for number in range(1500)]
    text = (
        metadata("all").strip()
        + b"\nFormat: copyright-format/1.0\n"
        + b"".join(b"License: X%d\n" % (number % 10) for number in range(70_000))
    )
    files: dict[str, Any] = {f"usr/share/doc/{name}": link("all") for name in names}
    files |= {f"{SITE}/{name}.dist-info/METADATA": link("/usr/share/doc/all/copyright") for name in names}
    files |= {"usr/share/doc/all/copyright": text, "var/lib/dpkg/status": status(*names)}
    found: list[str] = []
    ends(lambda: found.extend(purls(tmp_path, files)))
    assert len(found) == len(names) + 1


@pytest.mark.parametrize("line", ["a:\n", "\n", "Package: /\nVersion: 1\n\n"], ids=["fields", "ends", "packages"])
def test_a_database_of_a_few_kilobytes_that_unpacks_to_many(line: str, tmp_path: Path) -> None:
    """It took 1.7 GB, or 20 s; one that was cut hid the packages behind the cut."""
    text = (line * ((64 << 20) // len(line))).encode()
    files = {"var/lib/dpkg/status": text + b"\n" + status("hidden")}

    def refused() -> None:
        with fails(InvalidError, "image-packages-too-many"):
            purls(tmp_path, files)

    ends(refused, memory=250 << 20)


@pytest.mark.parametrize("name", ["", "Name: /\nVersion: 1\n"], ids=["long", "many"])
def test_many_distributions_that_have_no_name(name: str, tmp_path: Path) -> None:
    """Each took 0.4 s, and none counted."""
    text = name.encode() + (b"a:\n" * 340_000 if not name else b"")
    count = 100 if not name else 3100
    with fails(InvalidError, "image-packages-too-many"):
        purls(tmp_path, {f"{SITE}/x{number}-1.dist-info/METADATA": text for number in range(count)})


def test_many_licences(tmp_path: Path) -> None:
    """3,000 packages of 100 licences made 57 s of work, and a document of 109 MB out of 0.3 MB."""
    text = "Format: copyright-format/1.0\n" + "".join(f"License: X{number}\n" for number in range(100))
    names = [f"p{number}" for number in range(201)]
    files = {f"usr/share/doc/{name}/copyright": text.encode() for name in names}
    with fails(InvalidError, "image-packages-too-many"):
        purls(tmp_path, {**files, "var/lib/dpkg/status": status(*names)})


def test_a_layer_that_is_missing(tmp_path: Path) -> None:
    image = open_image(layout(tmp_path / "image", [tar({"a": b"1"}), tar({"b": b"1"})]))
    image.layers[0].path.unlink()
    with fails(PinError, "image-layer-missing"):
        image_inventory(image, "test", None)


def test_metadata_whose_text_has_parts_inside_each_other(tmp_path: Path) -> None:
    """The parser of messages followed them, until Python's stack ended."""
    parts = "".join(f"Content-Type: multipart/mixed; boundary=b{number}\n\n--b{number}\n" for number in range(3000))
    text = f"Name: x\nVersion: 1\n{parts}"
    assert purls(tmp_path, {f"{SITE}/x-1.dist-info/METADATA": text.encode()}) == ["pkg:pypi/x@1"]


def test_names_that_no_package_url_can_hold(tmp_path: Path) -> None:
    rows = b"Package: \nVersion: 1\n\nPackage: /\nVersion: 1\n\nPackage: a\nVersion: 1\n"
    files = {"var/lib/dpkg/status": rows, f"{SITE}/x-1.dist-info/METADATA": b"Name: /\nVersion: 1\n"}
    assert purls(tmp_path, files) == ["pkg:deb/debian/a@1"]
