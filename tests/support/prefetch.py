"""Downloads the inputs of the end-to-end tests: `python -m tests.support.prefetch`, beside other tests."""

from __future__ import annotations

from builder.inputs.fetch import fetch
from builder.plan.resolve import resolve
from builder.project import Project
from builder.store.store import Store
from tests.support.cache import INPUTS, seed_inputs
from tests.support.project import ROOT


def main() -> None:
    """Fetch what nemotron-omni on the hermetic base is made of (4 GB) into the cache of the tests."""
    project = Project((ROOT,))
    plan = resolve(project, project.recipe("nemotron-omni"), base="hermetic")
    inputs = {item.digest: item for layer in (*plan.layers, *plan.toolchains) for item in layer.inputs}
    seed_inputs(inputs)
    fetch(Store(INPUTS), list(inputs.values()), offline=False, progress=lambda event: None)


if __name__ == "__main__":
    main()
