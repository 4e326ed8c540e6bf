"""Fetches inputs in tests: the content of an input, and the events of a fetch."""

from __future__ import annotations

import random

from builder.inputs.fetch import Hosts, fetch
from builder.model.inputs import FetchEvent, Input
from builder.store.store import Store

DATA = random.Random(1).randbytes(300_000)


def get(store: Store, *wanted: Input, hosts: Hosts, offline: bool = False) -> list[FetchEvent]:
    events: list[FetchEvent] = []
    fetch(store, wanted, offline=offline, progress=events.append, hosts=hosts, backoff=0.01)
    return events
