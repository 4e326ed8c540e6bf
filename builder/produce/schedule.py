"""The schedule of a build: tasks run in parallel when their inputs have arrived; the first error cancels the rest.

A schedule knows nothing of layers, engines or networks: tasks and feeds are functions. A feed delivers inputs while
tasks run, by calling `arrived`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Condition, Event, RLock, Thread

from builder.errors import Cancelled
from builder.parallel import PATIENCE


@dataclass(eq=False)
class Task:
    """A function that runs once, when `missing` is empty and every task that it comes after is done."""

    run: Callable[[], None]
    missing: set[str]
    """Names of the inputs that have not arrived."""
    after: set[Task] = field(default_factory=set)
    """Tasks that are not done."""
    waits: Callable[[], None] | None = None
    """Is called when the last input has arrived and the task does not start yet."""
    started: bool = False


class Schedule:
    """Runs tasks on a number of workers. Add all tasks first, then call `run` once.

    cancelled: is set by the first error. A task may pass it on, and must raise Cancelled soon after it is set.
    """

    def __init__(self, workers: int) -> None:
        self.cancelled = Event()
        self._free = workers
        self._tasks: list[Task] = []
        self._failure: BaseException | None = None
        self._running = 0
        self._lock = RLock()
        self._idle = Condition(self._lock)

    def add(
        self,
        run: Callable[[], None],
        *,
        missing: Iterable[str] = (),
        after: Iterable[Task] = (),
        waits: Callable[[], None] | None = None,
    ) -> Task:
        """A task; tasks that are ready at the same time start in the order in which they were added.

        waits: is called when the last input has arrived and the task does not start yet. It must not wait for others.
        """
        task = Task(run, set(missing), set(after), waits)
        self._tasks.append(task)
        return task

    def arrived(self, name: str) -> None:
        """An input is there: starts the tasks that waited only for this one. May be called from any thread."""
        with self._lock:
            last = [task for task in self._tasks if task.missing == {name}]
            for task in self._tasks:
                task.missing.discard(name)
            self._start_ready()
            # Under the lock: none of them starts meanwhile.
            for task in last:
                if task.waits is not None and not task.started:
                    task.waits()

    def check(self) -> None:
        """Raises Cancelled when the schedule is cancelled."""
        if self.cancelled.is_set():
            raise Cancelled

    def run(self, feeds: Sequence[Callable[[], None]] = ()) -> None:
        """Run all tasks and feeds to the end, each feed in a thread of its own.

        Raises the first error of a task or feed; Cancelled when there was none but one of them raised Cancelled. What
        interrupts the caller, such as KeyboardInterrupt, cancels as an error does. Then the others get PATIENCE
        seconds: one that waits for a silent server stays behind, in a daemon thread.
        """
        try:
            with self._idle:
                for feed in feeds:
                    self._start(feed, None)
                self._start_ready()
                while self._running and not self.cancelled.is_set():
                    # With a limit: a signal that the kernel gives to another thread is handled when this one wakes.
                    self._idle.wait(0.5)
        except BaseException:
            self.cancelled.set()
            raise
        finally:
            if self.cancelled.is_set():
                self._wait_for_the_rest()
        if self._failure is not None:
            raise self._failure
        self.check()
        if any(not task.started for task in self._tasks):
            raise AssertionError("a task waits for an input that no feed delivers")

    def _wait_for_the_rest(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: not self._running, PATIENCE)

    def _start_ready(self) -> None:
        for task in self._tasks:
            if self._free and not (task.started or task.missing or task.after or self.cancelled.is_set()):
                task.started = True
                self._free -= 1
                self._start(task.run, task)

    def _start(self, run: Callable[[], None], task: Task | None) -> None:
        self._running += 1
        Thread(target=self._execute, args=(run, task), daemon=True).start()

    def _execute(self, run: Callable[[], None], task: Task | None) -> None:
        try:
            self.check()
            run()
        except BaseException as error:
            self._fail(error)
        with self._idle:
            self._running -= 1
            if task is not None:
                self._done(task)
            self._idle.notify_all()

    def _done(self, task: Task) -> None:
        self._free += 1
        for other in self._tasks:
            other.after.discard(task)
        self._start_ready()

    def _fail(self, error: BaseException) -> None:
        """Cancel everything. A cancelled task raises Cancelled, which carries no cause: the first other error does."""
        with self._lock:
            if self._failure is None and not isinstance(error, Cancelled):
                self._failure = error
        self.cancelled.set()
