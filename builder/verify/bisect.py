"""The search for the smallest change that turns an image bad. It knows nothing of images: a function judges them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from builder.verify.hybrid import Change

Group = tuple[Change, ...]
"""Changes that can only be made together."""
Judge = Callable[[Collection[Change]], bool | None]
"""Whether the image with these changes is bad; None when that cannot be known."""


@dataclass(frozen=True)
class Found:
    """The result. together: groups that make the image bad only together; one group alone is the usual case.

    either: when images could not be judged, the groups among which the last of them is; else empty.
    """

    together: tuple[Group, ...]
    either: tuple[Group, ...] = ()


def groups_of(changes: Sequence[Change], needs: Mapping[Change, Collection[Change]]) -> tuple[Group, ...]:
    """The changes in an order in which everything that one needs comes before it, or in its own group.

    So all groups up to any one are an image that can be made. needs: `implied`.
    """
    ordered: list[Group] = []
    placed: set[Change] = set()
    for change in changes:
        for each in sorted(needs[change], key=lambda item: (len(needs[item]), changes.index(item))):
            if each not in placed:
                group = tuple(item for item in changes if item in needs[each] and needs[item] == needs[each])
                ordered.append(group)
                placed |= {*group}
    return tuple(ordered)


def images_needed(count: int) -> int:
    """How many images one bad change among `count` groups takes at most: the search, and the change by itself."""
    return max(2, math.ceil(math.log2(count)) + 1)


def search(groups: Sequence[Group], needs: Mapping[Change, Collection[Change]], judge: Judge) -> Found | None:
    """The smallest set of groups that makes the image bad; None when the image without any change is bad already, or
    the one with all of them is not.

    Halves the groups until one is left that turns the image. If the image with this one alone is not bad, another is
    needed as well, which is searched in the same way among those before it.
    """
    none: frozenset[Change] = frozenset()
    every = frozenset(change for group in groups for change in group)
    judged: dict[frozenset[Change], bool | None] = {}

    def is_bad(made: Collection[Change]) -> bool | None:
        made = frozenset(made)
        if made not in judged:
            judged[made] = judge(made)
        return judged[made]

    together: list[Group] = []
    made, last = none, len(groups)
    while True:
        low, last = _turn(groups, last, made, is_bad)
        if last - low > 1:
            return Found(tuple(together), tuple(groups[low:last]))
        culprit = groups[last - 1]
        together.append(culprit)
        made |= {change for item in culprit for change in needs[item]}
        last -= 1
        alone = is_bad(made)
        # The two ends are known to the user. Only when all images were alike, they are judged too.
        if False not in judged.values() and is_bad(none):
            return None
        if True not in judged.values() and is_bad(every) is False:
            return None
        if alone is not False or not last:
            return Found(tuple(together))


def _turn(
    groups: Sequence[Group], last: int, made: Collection[Change], is_bad: Callable[[Collection[Change]], bool | None]
) -> tuple[int, int]:
    """Two numbers of groups: with `made` and the first of them the image is good, with the second bad. They are one
    apart, unless images between them could not be judged."""
    low, high, unknown = 0, last, set[int]()
    while middles := [place for place in _middles(groups, low, high) if place not in unknown]:
        result = is_bad({*made, *sum(groups[: middles[0]], ())})
        if result is None:
            unknown.add(middles[0])
        elif result:
            high = middles[0]
        else:
            low = middles[0]
    return low, high


def _middles(groups: Sequence[Group], low: int, high: int) -> list[int]:
    """Where to divide, the best first: in the middle, or at the start of a section when that takes no image more."""
    most = 2 ** max(0, math.ceil(math.log2(high - low)) - 1)

    def rank(place: int) -> tuple[bool, bool, float]:
        within = max(place - low, high - place) <= most
        starts = groups[place][0].section != groups[place - 1][0].section
        return not within, not (within and starts), abs(place - (low + high) / 2)

    return sorted(range(low + 1, high), key=rank)
