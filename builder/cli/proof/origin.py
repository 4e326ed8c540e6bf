"""Whose plan an image was made from: `verify --project` plans the recipe again and compares bundle with bundle."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from builder.cli.output import counted, say
from builder.cli.request import PlanRequest
from builder.errors import BuilderError, DiffersError, UsageError
from builder.inputs.mirrors import redact
from builder.model.plan import Plan
from builder.plan.bundle import write_bundle
from builder.plan.diff import details, differences, plan_contents
from builder.plan.explain import key_changes
from builder.store.removal import remove
from builder.store.store import Store
from builder.verify.bundles import Bundle
from builder.verify.checkout import Checkout, project_of

_LINES = 20


@dataclass(frozen=True)
class Asked:
    """The project of `--project`, and the options that choose an image of it; those that are not given are None."""

    project: str
    base: str | None
    sets: tuple[str, ...]
    profile: str | None


class ProjectPlans:
    """The plans of a project for bundles; the project is read, and fetched, once. Raises as `project_of`."""

    def __init__(self, asked: Asked, store: Store) -> None:
        self._asked = asked
        self._store = store
        self._folder = store.scratch()
        try:
            self._checkout: Checkout = project_of(asked.project, self._folder)
        except BaseException:
            self.close()
            raise

    @property
    def fetched(self) -> bool:
        """Whether the project is a stranger's repository, and not a folder of this machine."""
        return self._checkout.fetched

    def close(self) -> None:
        """Remove what was fetched."""
        remove(self._folder)

    def request(self, bundle: Bundle) -> PlanRequest:
        """The image of the project that a bundle says it is: its recipe, base and compression.

        Profile and parameters are those that were given here, else those that the publisher wrote beside the bundle.
        """
        plan, asked = bundle.plan, self._asked
        chosen = asked.profile is not None or asked.sets
        sets, profile = (asked.sets, asked.profile) if chosen else (bundle.sets, bundle.profile)
        return PlanRequest(plan.recipe, asked.base or plan.base, sets, profile, plan.platform, plan.compression)

    def plan(self, bundle: Bundle) -> Plan:
        """The project's own plan of the same image. Raises BuilderError."""
        return self.request(bundle).plan(self._checkout.project)

    def makes(self, bundle: Bundle) -> bool:
        """Whether the project has this very plan."""
        try:
            return write_bundle(bundle.plan) == write_bundle(self.plan(bundle))
        except BuilderError:
            return False

    def name(self, bundle: Bundle) -> str:
        """The project, its commit and the options, for a person."""
        revision = self._checkout.revision
        text = self._asked.project.rpartition("@")[0] if self.fetched else self._asked.project
        at = f" at commit {revision.commit}{'' if revision.clean else ', with changes'}" if revision else ", not in git"
        words = self.request(bundle).words()
        return f"{redact(text)}{at} ({shlex.join(words)})"

    def check(self, bundle: Bundle, where: str) -> None:
        """Raise DiffersError when the project has another plan, after printing in what they differ."""
        try:
            differences = _differences(bundle.plan, self.plan(bundle))
        except UsageError as error:
            differences = [f"the project has no such image: {error.what}"]
        if not differences:
            return
        _say(differences)
        raise DiffersError(
            f"the plan in the bundle {bundle.digest} is not the one of {self.name(bundle)}",
            id="verify-other-project",
            where=where,
            cause=differences[0],
            next="the image was made from another commit, with other options or by another version of builder",
        )


def _differences(bundle: Plan, project: Plan) -> list[str]:
    """In what the plan of a bundle differs from that of a project, as `builder diff` says it; empty when equal."""
    if write_bundle(bundle) == write_bundle(project):
        return []
    found = details(differences(plan_contents(bundle), plan_contents(project)))
    theirs = {layer.id: layer for layer in project.layers}
    parts = (
        f"layer {layer.id}: {line}"
        for layer in bundle.layers
        if layer.id in theirs
        for line in details(key_changes((bundle, layer), (project, theirs[layer.id])))
    )
    return [*found, *parts] or ["checks, notes or titles"]


def _say(differences: Sequence[str]) -> None:
    say(f"the plan differs from the project's in {counted(len(differences), 'place')}:")
    for line in differences[:_LINES]:
        say(f"  {line}")
