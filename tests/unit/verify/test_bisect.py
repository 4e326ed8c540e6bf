"""The search for the smallest bad change, on changes without images."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

import pytest

from builder.verify.bisect import Found, groups_of, images_needed, search
from builder.verify.hybrid import Change


def some(count: int, sections: int = 1) -> list[Change]:
    return [Change("wheel", f"w{number:02}", f"s{number * sections // count}", "1", "2") for number in range(count)]


def alone(changes: Sequence[Change]) -> Mapping[Change, Collection[Change]]:
    return {change: {change} for change in changes}


class Judge:
    """Counts the images that were judged. bad: names; an image with all of one of these sets is bad."""

    def __init__(self, *bad: set[str], unknown: Collection[str] = ()) -> None:
        self.bad, self.unknown = bad, set(unknown)
        self.judged: list[set[str]] = []

    def __call__(self, made: Collection[Change]) -> bool | None:
        names = {change.name for change in made}
        self.judged.append(names)
        if self.unknown and len(names & self.unknown) == 1:
            return None
        return any(these <= names for these in self.bad)


def names(found: Found | None) -> list[set[str]]:
    assert found is not None
    return [{change.name for change in group} for group in found.together]


@pytest.mark.parametrize("sections", [1, 3, 7])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 40])
def test_one_bad_change_is_found_within_the_announced_number_of_images(count: int, sections: int) -> None:
    changes = some(count, sections)
    groups = groups_of(changes, alone(changes))
    for culprit in changes:
        judge = Judge({culprit.name})
        assert names(search(groups, alone(changes), judge)) == [{culprit.name}]
        assert len(judge.judged) <= images_needed(count)
    assert images_needed(40) == 7


def test_two_changes_that_fail_only_together_are_both_named() -> None:
    changes = some(40, 3)
    groups = groups_of(changes, alone(changes))
    for first, second in itertools.islice(itertools.combinations(changes, 2), 0, None, 7):
        judge = Judge({first.name, second.name})
        found = names(search(groups, alone(changes), judge))
        assert sorted(map(sorted, found)) == [[first.name], [second.name]]
        assert len(judge.judged) <= 15


def test_three_changes_that_fail_only_together() -> None:
    changes = some(20)
    found = names(search(groups_of(changes, alone(changes)), alone(changes), Judge({"w03", "w04", "w17"})))
    assert sorted(map(sorted, found)) == [["w03"], ["w04"], ["w17"]]


def test_one_of_two_bad_changes_is_found() -> None:
    changes = some(20)
    found = names(search(groups_of(changes, alone(changes)), alone(changes), Judge({"w05"}, {"w11"})))
    assert found == [{"w05"}]


def test_an_image_is_judged_once() -> None:
    changes = some(30, 4)
    judge = Judge({"w04", "w20"})
    search(groups_of(changes, alone(changes)), alone(changes), judge)
    assert len(judge.judged) == len({frozenset(made) for made in judge.judged})


def test_a_good_image_that_is_bad_and_a_bad_one_that_is_good_are_noticed() -> None:
    changes = some(9)
    groups = groups_of(changes, alone(changes))
    assert search(groups, alone(changes), Judge(set())) is None
    assert search(groups, alone(changes), Judge()) is None


def test_images_that_cannot_be_judged_are_left_out() -> None:
    changes = some(16)
    groups = groups_of(changes, alone(changes))
    # Images with one of w06 and w07 cannot be made: the search goes around them.
    assert names(search(groups, alone(changes), Judge({"w03"}, unknown={"w06", "w07"}))) == [{"w03"}]
    found = search(groups, alone(changes), Judge({"w07"}, unknown={"w06", "w07"}))
    assert found is not None
    assert [item.name for group in found.either for item in group] == ["w06", "w07"]


def test_what_a_change_needs_comes_before_it() -> None:
    changes = some(6)
    first, second, third, fourth, fifth, sixth = changes
    needs = {
        first: {first, sixth},
        second: {second},
        third: {third, fourth},
        fourth: {third, fourth},
        fifth: {fifth, third, fourth},
        sixth: {sixth},
    }
    groups = groups_of(changes, needs)
    assert groups == ((sixth,), (first,), (second,), (third, fourth), (fifth,))
    judge = Judge({"w00"})
    assert names(search(groups, needs, judge)) == [{"w00"}]
    for made in judge.judged:
        assert all({item.name for item in needs[change]} <= made for change in changes if change.name in made)
