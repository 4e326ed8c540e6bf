"""The list of checks in the order of the report. A fact that cannot be read here is `unknown`, never `failed`."""

from __future__ import annotations

from builder.doctor import link, machine, software
from builder.doctor.question import Answer, Check, Question

CHECKS: tuple[Check, ...] = (
    machine.driver,
    machine.gpu,
    machine.kernel,
    software.docker,
    software.gpu_runtime,
    software.engine,
    software.registry,
    software.front_end,
    machine.model,
    machine.memory,
    machine.page_cache,
    machine.leaked,
    machine.disk,
    software.token,
    link.link,
    link.roce,
    link.memlock,
    link.peer,
    link.bandwidth,
)


def examine(q: Question) -> list[Answer]:
    """The answers of all checks that apply to the question."""
    return [answer for check in CHECKS if (answer := check(q)) is not None]
