"""The checks. Each looks at one thing; what cannot be seen here is said, not failed."""

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
    machine.memory,
    machine.page_cache,
    machine.leaked,
    machine.disk,
    software.token,
    link.link,
    link.roce,
    link.memlock,
    link.peer,
)


def examine(q: Question) -> list[Answer]:
    """The answers of all checks that have to do with the question."""
    return [answer for check in CHECKS if (answer := check(q)) is not None]
