"""Reading ELF files and fatbins."""

from __future__ import annotations

import io
import struct

import pytest

from builder.smoke.elf import fatbin as fatbins
from builder.smoke.elf.dynamic import read_dynamic
from builder.smoke.elf.fatbin import inventory
from builder.smoke.elf.object import machine_name, machine_of, reader
from tests.support.images import elf, fatbin


def test_dynamic_section() -> None:
    data = elf(
        soname="libx.so.1",
        needed=["liba.so", "libc.so.6"],
        rpath="$ORIGIN/../lib:/opt/x",
        versions={"libc.so.6": ["GLIBC_2.17", "GLIBC_2.34"], "libm.so.6": ["GLIBC_2.29"]},
        provides=["X_1", "X_2"],
    )
    found = read_dynamic(reader(io.BytesIO(data)))
    assert found.machine == "aarch64"
    assert found.soname == "libx.so.1"
    assert found.needed == ("liba.so", "libc.so.6")
    assert found.rpath == ("$ORIGIN/../lib", "/opt/x")
    assert found.versions == {"libc.so.6": {"GLIBC_2.17", "GLIBC_2.34"}, "libm.so.6": {"GLIBC_2.29"}}
    assert found.provides == {"X_1", "X_2"}


def test_runpath_hides_rpath() -> None:
    found = read_dynamic(reader(io.BytesIO(elf(rpath="/a", runpath="/b"))))
    assert (found.rpath, found.runpath) == ((), ("/b",))


def test_machine() -> None:
    assert machine_of(elf()) == 183
    assert machine_of(elf(machine=62)[:20]) == 62
    assert machine_of(b"#!/bin/sh\nexit 0 # long enough") is None
    assert machine_of(b"\x7fELF") is None
    assert machine_name(183) == "aarch64"
    assert machine_name(4711) == "machine 4711"


def test_damaged_elf() -> None:
    with pytest.raises(ValueError, match="damaged ELF"):
        read_dynamic(reader(io.BytesIO(elf()[:30])))
    with pytest.raises(ValueError, match="damaged ELF"):
        inventory(reader(io.BytesIO(b"no ELF file at all")))


def test_inventory_counts_targets() -> None:
    first = fatbin((2, 75, 0x8011), (2, 90, 0x108011), (2, 120, 0x1208011), (1, 120, 0x8011))
    second = fatbin((2, 121, 0x1108011), (2, 75, 0x8011))
    # The linker pads between containers.
    found = inventory(reader(io.BytesIO(elf(gpu=first + b"\0" * (-len(first) % 8 + 16) + second))))
    assert found == {"sm_75": 2, "sm_90a": 1, "sm_120f": 1, "compute_120": 1, "sm_121a": 1}


def test_no_gpu_code() -> None:
    assert not inventory(reader(io.BytesIO(elf())))


@pytest.mark.parametrize("cut", [10, 40, 100])
def test_damaged_fatbin(cut: int) -> None:
    data = fatbin((2, 121, 0), (2, 120, 0))
    if cut == 10:
        assert not inventory(reader(io.BytesIO(elf(gpu=data[:cut]))))
        return
    with pytest.raises(ValueError, match="damaged fatbin"):
        inventory(reader(io.BytesIO(elf(gpu=data[:cut]))))


def test_entry_longer_than_its_container() -> None:
    data = bytearray(fatbin((2, 121, 0)))
    data[16 + 8] = 0xFF
    with pytest.raises(ValueError, match="an entry is longer"):
        inventory(reader(io.BytesIO(elf(gpu=bytes(data)))))


def test_code_for_thousands_of_targets_is_refused() -> None:
    """Each target was a text in memory: a library of 256 MB may name four million."""
    data = elf(gpu=fatbin(*((2, number, 0) for number in range(2000))))
    with pytest.raises(ValueError, match="targets"):
        inventory(reader(io.BytesIO(data)))


def test_names_of_sections_that_are_parts_of_each_other_are_bounded() -> None:
    """Each was a text in memory: four layers of 519 bytes took 600 MB."""
    names = b"a" * 4000 + b"\0"
    count = 3000
    head = struct.pack("<HHIQQQIHHHHHH", 3, 183, 1, 0, 0, 64 + len(names), 0, 64, 0, 0, 64, count, count - 1)
    rows = bytes(64) * (count - 1) + struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64, len(names), 0, 0, 1, 0)
    data = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + head + names + rows
    with pytest.raises(ValueError, match="names of its sections"):
        inventory(reader(io.BytesIO(data)))


def test_headers_of_gpu_code_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of 21 KB with nothing but headers took 22 s."""
    monkeypatch.setattr(fatbins, "_MOST_HEADERS", 100)
    entries = fatbin(*((2, 121, 0),) * 101)
    for code in (fatbin() * 101, entries):
        with pytest.raises(ValueError, match="headers"):
            inventory(reader(io.BytesIO(elf(gpu=code))))
    assert inventory(reader(io.BytesIO(elf(gpu=fatbin(*((2, 121, 0),) * 99))))) == {"sm_121": 99}


@pytest.mark.parametrize("tag", [0x7FFFFFFF, 0x7FFFFFFD, 0x6FFFFEFC, 0x6FFFFEFB])
def test_filters_and_auditors_are_loaded_too(tag: int) -> None:
    data = elf(needed=["liba.so"], soname="libevil.so").replace(struct.pack("<QQ", 14, 9), struct.pack("<QQ", tag, 9))
    assert read_dynamic(reader(io.BytesIO(data))).needed == ("liba.so", "libevil.so")
