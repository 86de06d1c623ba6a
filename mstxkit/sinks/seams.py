"""Wrapping somebody else's function so that we hear of its calls: transparent, and undone exactly.

What the function returns and raises passes unchanged; what goes wrong on our side is a counted fault.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from .. import faults

Listener = Callable[..., object]
_undo: list[Callable[[], None]] = []


def listen_at(
    owner: Any, name: str, *, before: Listener | None = None, after: Listener | None = None
) -> Callable[[], None]:
    """Replace the function `owner.name`, of a class or module, by one that also tells us. Returns an undo: one that was
    replaced again by somebody else since stays as it is.

    `before` is called with the function's positional arguments before it runs, `after` so when it has returned, not
    when it raised. Raises AttributeError: there is no such function.
    """
    original = getattr(owner, name)

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        _tell_listener(before, name, args)
        result = original(*args, **kwargs)
        _tell_listener(after, name, args)
        return result

    setattr(owner, name, replacement)

    def undo() -> None:
        if undo in _undo:
            _undo.remove(undo)
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)

    _undo.append(undo)
    return undo


def undo_all() -> None:
    """Put every function back, last one first."""
    while _undo:
        _undo[-1]()


def _tell_listener(listener: Listener | None, name: str, args: tuple[Any, ...]) -> None:
    if listener is None:
        return
    try:
        listener(*args)
    except Exception as exc:
        faults.note_fault(f"the sink that listens to {name}", exc)
