"""Which batch a DataLoader's worker fetches: the number that its loop gave it, from 0 in each epoch.

Source: torch 2.13.0, `utils/data/_utils/worker.py`, `_worker_loop`: it takes (number, indices) from `index_queue`, and
calls `fetch` with the indices alone.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any, Callable

_QUEUE = "index_queue"
_given = SimpleNamespace(number=None)  # the batch that this worker was given, until its fetch has asked for it


class Numbered:
    """A worker's queue of what to fetch, which remembers the number of what was taken last."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """What the queue gives."""
        taken = self._queue.get(*args, **kwargs)
        first = taken[0] if type(taken) is tuple and taken else None
        _given.number = first if type(first) is int else None
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def worker_loop(original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Run a worker with its queue in a `Numbered` one; as it is where it has no such queue."""
    names = list(inspect.signature(original).parameters)
    if _QUEUE in kwargs:
        kwargs[_QUEUE] = Numbered(kwargs[_QUEUE])
    elif _QUEUE in names[: len(args)]:
        at = names.index(_QUEUE)
        args = (*args[:at], Numbered(args[at]), *args[at + 1 :])
    return original(*args, **kwargs)


def count_batch(*_: Any, **__: Any) -> dict[str, int]:
    """The attributes of a fetch. Once: a loader inside the dataset fetches batches of its own."""
    number, _given.number = _given.number, None
    return {} if number is None else {"batch": number}
