"""The schedule of a build: tasks run in parallel when their inputs have arrived; the first error cancels the rest.

A schedule knows nothing of layers, engines or networks: tasks and feeds are functions. A feed delivers inputs while
tasks run, by calling `arrived`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Condition, Event, RLock

from builder.errors import Cancelled


@dataclass(eq=False)
class Task:
    """A function that runs once, when `missing` is empty and every task that it comes after is done."""

    run: Callable[[], None]
    missing: set[str]
    """Names of the inputs that have not arrived."""
    after: set[Task] = field(default_factory=set)
    """Tasks that are not done."""
    started: bool = False


class Schedule:
    """Runs tasks on a number of workers. Add all tasks first, then call `run` once.

    cancelled: is set by the first error. A task may pass it on, and must raise Cancelled soon after it is set.
    """

    def __init__(self, workers: int) -> None:
        self.cancelled = Event()
        self._workers = workers
        self._tasks: list[Task] = []
        self._failure: BaseException | None = None
        self._running = 0
        self._lock = RLock()
        self._idle = Condition(self._lock)

    def add(self, run: Callable[[], None], *, missing: Iterable[str] = (), after: Iterable[Task] = ()) -> Task:
        """A task; tasks that are ready at the same time start in the order in which they were added."""
        task = Task(run, set(missing), set(after))
        self._tasks.append(task)
        return task

    def arrived(self, name: str) -> None:
        """An input is there: starts the tasks that waited only for this one. May be called from any thread."""
        with self._lock:
            for task in self._tasks:
                task.missing.discard(name)
            self._start_ready()

    def check(self) -> None:
        """Raises Cancelled when the schedule is cancelled."""
        if self.cancelled.is_set():
            raise Cancelled

    def run(self, feeds: Sequence[Callable[[], None]] = ()) -> None:
        """Run all tasks and feeds to the end, each feed in a thread of its own.

        Raises the first error of a task or feed, after all others have ended; Cancelled when there was none but one of
        them raised Cancelled. What interrupts the caller, such as KeyboardInterrupt, cancels as an error does.
        """
        with (
            ThreadPoolExecutor(self._workers) as self._task_pool,
            ThreadPoolExecutor(max(1, len(feeds))) as feed_pool,
        ):
            try:
                for feed in feeds:
                    self._submit(feed_pool, feed, None)
                with self._lock:
                    self._start_ready()
                self._wait()
            except BaseException:
                self.cancelled.set()
                raise
        if self._failure is not None:
            raise self._failure
        self.check()
        if any(not task.started for task in self._tasks):
            raise AssertionError("a task waits for an input that no feed delivers")

    def _wait(self) -> None:
        with self._idle:
            while self._running:
                # With a limit: a signal that the kernel gives to another thread is handled here when this one wakes.
                self._idle.wait(0.5)

    def _start_ready(self) -> None:
        for task in self._tasks:
            if not (task.started or task.missing or task.after or self.cancelled.is_set()):
                task.started = True
                self._submit(self._task_pool, task.run, task)

    def _submit(self, pool: ThreadPoolExecutor, run: Callable[[], None], task: Task | None) -> None:
        with self._lock:
            self._running += 1
        pool.submit(self._execute, run, task)

    def _execute(self, run: Callable[[], None], task: Task | None) -> None:
        try:
            self.check()
            run()
        except BaseException as error:
            self._fail(error)
        else:
            self._done(task)
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def _done(self, task: Task | None) -> None:
        if task is None:
            return
        with self._lock:
            for other in self._tasks:
                other.after.discard(task)
            self._start_ready()

    def _fail(self, error: BaseException) -> None:
        """Cancel everything. A cancelled task raises Cancelled, which carries no cause: the first other error does."""
        with self._lock:
            if self._failure is None and not isinstance(error, Cancelled):
                self._failure = error
        self.cancelled.set()
