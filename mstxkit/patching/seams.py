"""A framework's own range decorator, replaced as soon as its module is imported: what it decorates from then on gets a
range of ours, also where the decorated function is copied by value before anybody could patch it.

Why: MindSpeed-RL's `mstx_timer_decorator` leaks its range when the body raises, times generators until their first
value only, and pays for every call even when nothing listens (master 05a90d7, `mindspeed_rl/utils/utils.py`).
"""

from __future__ import annotations

import functools
import sys
from types import FunctionType, ModuleType
from typing import Any, Callable, NamedTuple

from .. import faults, signatures
from .apply import Change, Made, generic
from .declare import Seam


class Decorated(NamedTuple):
    """One function that passed through the seam."""

    ours: Any
    made: Made


class OpenSeam:
    """The seam of one framework while it is patched.

    Args:
        seam: What is declared.
    """

    def __init__(self, seam: Seam) -> None:
        self.seam = seam
        self.change: Change | None = None
        self._decorated: dict[int, Decorated] = {}

    def open(self, module: ModuleType) -> Change | None:
        """Replace the decorator in its module, once. None where there is none."""
        name = self.seam.path.partition(":")[2]
        upstream = vars(module).get(name)
        if self.change is None and callable(upstream):
            self.change = Change(module, name, upstream, self._decorator(upstream))
            self.change.make()
        return self.change

    def _decorator(self, upstream: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(upstream)
        def decorator(func: Any) -> Any:
            theirs = upstream(func)
            try:
                return self._ours(func, theirs)
            except Exception as exc:
                faults.note(f"the seam {self.seam.path}", exc)
                return theirs

        return decorator

    def _ours(self, func: Any, theirs: Any) -> Any:
        ours = generic(func)
        self._decorated[id(ours)] = Decorated(ours, Made(theirs, func))
        return ours

    def made(self, raw: Any) -> Made | None:
        """What a function that came through the seam would be without us."""
        found = self._decorated.get(id(raw))
        return None if found is None else found.made

    def silence(self) -> None:
        """What the framework would have without us, also where ours stays held: below decorators of its own."""
        for one in self._decorated.values():
            if isinstance(one.ours, FunctionType):
                signatures.silence(one.ours, one.made.upstream)

    def changes(self) -> list[Change]:
        """The decorator, and where the functions that no target declares are held: to put back what would be there."""
        stored = [change for one in self._decorated.values() for change in _stored(one)]
        return stored if self.change is None else [self.change, *stored]


def _stored(one: Decorated) -> list[Change]:
    module, qualname = getattr(one.ours, "__module__", ""), getattr(one.ours, "__qualname__", "")
    holder: Any = sys.modules.get(module)
    *parents, last = qualname.split(".")
    for part in parents:
        holder = vars(holder).get(part) if isinstance(holder, (ModuleType, type)) else None
    if isinstance(holder, (ModuleType, type)) and vars(holder).get(last) is one.ours:
        return [Change(holder, last, one.made.upstream, one.ours)]
    return []
