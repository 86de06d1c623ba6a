"""Work for which the interpreter is not needed, done ahead on threads: reading files and unpacking them."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Callable, Iterable, Iterator, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_THREADS, _AHEAD = 2, 4


def in_order(work: Callable[[T], R], items: Iterable[T], is_large: Callable[[T], bool]) -> Iterator[tuple[T, R]]:
    """Each item with its result, in order; large ones are worked on ahead, at most four at a time.

    What `work` raises is raised here. A small item costs less than to hand it on: it waits for its turn.
    """
    waiting: deque[tuple[T, Future[R] | None]] = deque()
    with ThreadPoolExecutor(_THREADS, "mstxkit-reading") as pool:
        try:
            for item in items:
                waiting.append((item, pool.submit(work, item) if is_large(item) else None))
                if len(waiting) >= _AHEAD or waiting[0][1] is None:
                    yield _first(waiting, work)
            while waiting:
                yield _first(waiting, work)
        finally:
            for _, future in waiting:
                if future is not None:
                    future.cancel()


def _first(waiting: deque[tuple[T, Future[R] | None]], work: Callable[[T], R]) -> tuple[T, R]:
    item, future = waiting.popleft()
    return item, work(item) if future is None else future.result()
