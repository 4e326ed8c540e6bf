"""The decision of `builder gc`, without a disk: kept and removed items, and the report."""

from __future__ import annotations

from typing import Any

import pytest

from builder.store.retention import Contents, GcReport, Item, Policy, Record, decide

NOW = 1_000_000.0
DAY = 86400.0


def digest(name: str) -> str:
    return f"sha256:{name}"


def image(
    name: str,
    *,
    age: float = 0,
    layers: tuple[str, ...] = (),
    recipe: str = "r",
    rows: list[dict[str, Any]] | None = None,
) -> Record:
    data = {
        "recipe": recipe,
        "base": "b",
        "digest": digest(f"{name}-manifest"),
        "config": digest(f"{name}-config"),
        "layers": rows or [{"key": key, "inputs": {}, "used": []} for key in layers],
    }
    return Record(Item(f"images/{name}.json", NOW - age, 4096), data)


def layer(key: str, *, age: float = 0, inputs: tuple[str, ...] = ()) -> Record:
    data = {name: digest(f"{key}-{name}") for name in ("digest", "listing", "receipt")}
    return Record(Item(f"layers/{key}.json", NOW - age, 4096), data, frozenset(map(digest, inputs)))


def blob(name: str, *, age: float = 0, size: int = 4096, linked: int = 0) -> Item:
    return Item(f"blobs/sha256/{name}", NOW - age, size, linked)


def blobs(*names: str) -> tuple[Item, ...]:
    return tuple(map(blob, names))


def removed(contents: Contents, claims: set[str] | None = None, **policy: Any) -> set[str]:
    return set(decide(contents, Policy(**policy), claims, NOW).paths)


def test_empty_store() -> None:
    assert decide(Contents(), Policy(), None, NOW) == GcReport()


def test_last_image_of_each_recipe_and_base_is_kept() -> None:
    contents = Contents(images=(image("old", age=2), image("new", age=1), image("other", age=3, recipe="s")))
    assert removed(contents) == {"images/old.json"}


def test_blobs_of_a_removed_image_are_removed_with_its_layers() -> None:
    contents = Contents(
        images=(image("old", age=1, layers=("k1", "k2")), image("new", layers=("k2",))),
        layers=(layer("k1"), layer("k2")),
        blobs=blobs("old-manifest", "old-config", "new-manifest", "k1-digest", "k1-receipt", "k2-digest", "k2-listing"),
    )
    assert removed(contents) == {
        "images/old.json",
        "layers/k1.json",
        *(f"blobs/sha256/{name}" for name in ("old-manifest", "old-config", "k1-digest", "k1-receipt")),
    }


def test_records_come_before_the_blobs_that_they_name() -> None:
    contents = Contents(images=(image("i"), image("j")), layers=(layer("k"),), blobs=blobs("k-digest"))
    kinds = [path.partition("/")[0] for path in decide(contents, Policy(older_than=0), None, NOW).paths]
    assert kinds == ["images", "images", "layers", "blobs"]


def test_inputs_of_a_kept_image_are_kept() -> None:
    rows = [{"key": "k", "inputs": {"a.deb": "locked"}, "used": [{"digest": digest("used")}]}]
    contents = Contents(images=(image("i", rows=rows),), blobs=blobs("locked", "used", "stray"))
    assert removed(contents) == {"blobs/sha256/stray"}
    assert removed(contents, keep_inputs=True) == set()


def test_toolchain_of_a_kept_layer_is_kept_with_its_inputs() -> None:
    contents = Contents(
        images=(image("i", layers=("compiled",)),),
        layers=(
            layer("compiled", inputs=("root-digest", "source")),
            layer("root", inputs=("gcc",)),
            layer("unused", inputs=("clang",)),
        ),
        blobs=blobs("root-digest", "source", "gcc", "clang", "unused-digest"),
    )
    assert removed(contents) == {"layers/unused.json", "blobs/sha256/clang", "blobs/sha256/unused-digest"}


def test_with_an_age_only_the_last_use_decides() -> None:
    contents = Contents(
        images=(image("old", age=40 * DAY), image("new", age=DAY)),
        layers=(layer("old", age=40 * DAY), layer("new", age=DAY)),
        blobs=(blob("old", age=40 * DAY), blob("new", age=DAY)),
        unpacked=(Item("run/old", NOW - 40 * DAY), Item("run/new", NOW - DAY)),
    )
    old = {"images/old.json", "layers/old.json", "blobs/sha256/old", "run/old"}
    assert removed(contents, older_than=30 * DAY) == old
    assert removed(contents, older_than=50 * DAY) == set()
    assert len(removed(contents, older_than=0)) == 8


def test_unpacked_images_are_removed_unless_a_process_runs_one() -> None:
    contents = Contents(unpacked=(Item("run/a", NOW),))
    assert removed(contents) == {"run/a"}
    assert removed(contents, {"run"}) == set()


def test_claimed_records_and_blobs_are_kept() -> None:
    contents = Contents(layers=(layer("k"), layer("l")), blobs=blobs("k-digest", "l-digest"))
    report = decide(contents, Policy(), {"layers/k.json", digest("l-digest")}, NOW)
    # A kept record keeps its blobs.
    assert report.paths == ["layers/l.json"]
    assert report.busy
    assert not decide(contents, Policy(), None, NOW).busy


def test_report_counts_records_and_adds_sizes() -> None:
    contents = Contents(
        images=(image("i", layers=("k",)),),
        layers=(layer("k"), layer("l")),
        blobs=(blob("k-digest", size=100), blob("l-digest", size=30), blob("stray", size=0, linked=7)),
    )
    report = decide(contents, Policy(), None, NOW)
    kept, lost = report.kept["layers"], report.removed["layers"]
    assert (kept.count, kept.size) == (1, 4196)
    assert (lost.count, lost.size) == (1, 4126)
    assert (report.removed["inputs"].count, report.removed["inputs"].linked) == (1, 7)
    assert report.freed == 4126
    assert report.images == [{"recipe": "r", "base": "b", "digest": digest("i-manifest"), "used": NOW}]


@pytest.mark.parametrize(
    "data", [{}, {"layers": 1}, {"layers": [1, {"used": 3, "inputs": 1}]}, {"base_image": 1, "recipe": []}]
)
def test_damaged_records(data: dict[str, Any]) -> None:
    damaged = Record(Item("images/e.json", NOW, 1), data)
    report = decide(Contents(images=(damaged, image("i")), layers=(Record(damaged.item, data),)), Policy(), None, NOW)
    assert "images/i.json" not in report.paths


def test_with_a_size_what_was_used_longest_ago_goes_first() -> None:
    contents = Contents(
        images=(image("old", age=3 * DAY, layers=("a",)), image("new", age=DAY, layers=("b",), recipe="s")),
        layers=(layer("a", age=3 * DAY), layer("b", age=3 * DAY)),
        blobs=(blob("a-digest", age=3 * DAY, size=50_000), blob("b-digest", age=3 * DAY, size=70_000)),
        unpacked=(Item("unpacked/new", NOW - 2 * DAY, 30_000),),
    )
    both, one = 50_000 + 70_000 + 4 * 4096, 70_000 + 2 * 4096
    assert removed(contents, max_used=both) == {"unpacked/new"}, "as without a size"
    gone = {"images/old.json", "layers/a.json", "blobs/sha256/a-digest"}
    assert removed(contents, max_used=both - 1) == gone, "an unpacked image is kept when it was used later"
    assert removed(contents, max_used=one + 29_999) == {*gone, "unpacked/new"}
    assert removed(contents, max_used=one) == {*gone, "unpacked/new"}
    everything = {*gone, "unpacked/new", "images/new.json", "layers/b.json", "blobs/sha256/b-digest"}
    assert removed(contents, max_used=one - 1) == everything
    assert removed(contents, {digest("b-digest")}, max_used=0) == everything - {"blobs/sha256/b-digest"}


def test_an_age_and_a_size_both_hold() -> None:
    contents = Contents(images=(image("old", age=9), image("mid", age=5), image("new", age=1)))
    assert removed(contents, older_than=7, max_used=3 * 4096) == {"images/old.json"}
    assert removed(contents, older_than=7, max_used=4096) == {"images/old.json", "images/mid.json"}
