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

from .. import faults
from ..marking import ranges, signatures
from .apply import DECORATORS
from .declare import Seam
from .reach import function_in
from .replacements import Replacement, in_decorator


class Made(NamedTuple):
    """A function that a framework's own range decorator made, what it wraps, and what is there instead, if it is."""

    upstream: Any
    inner: Any
    ours: Any = None


class OpenSeam:
    """The seam of one framework while it is patched; without a `seam` nothing is replaced, and nothing is of it."""

    def __init__(self, seam: Seam | None) -> None:
        self.seam = seam
        self.change: Replacement | None = None
        # Functions that passed through the seam.
        self._decorated: list[Made] = []

    def open(self, module_name: str, module: Any) -> None:
        """Replace the decorator where this is its module, once; nothing where there is none."""
        if self.seam is not None and self.seam.module == module_name and isinstance(module, ModuleType):
            name = self.seam.path.partition(":")[2]
            upstream = vars(module).get(name)
            if self.change is None and callable(upstream):
                self.change = Replacement(module, name, upstream, self._make_decorator(upstream, self.seam.path))
                self.change.make()

    def _make_decorator(self, upstream: Callable[..., Any], path: str) -> Callable[..., Any]:
        @functools.wraps(upstream)
        def decorator(*args: Any, **kwargs: Any) -> Any:
            theirs, func = upstream(*args, **kwargs), next(iter(args), None)
            if kwargs or len(args) != 1 or not (callable(func) or hasattr(func, "__get__")):
                return theirs  # called for a decorator: what that decorates is recognised, where it is declared
            try:
                ours = ranges.mstx_timer(func)
                self._decorated.append(Made(theirs, func, ours))
                return ours
            except Exception as exc:
                faults.note_fault(f"the seam {path}", exc)
                return theirs

        vars(decorator)["__mstxkit_seam__"] = True
        return decorator

    def made(self, raw: Any) -> Made | None:
        """What a range of the framework's own, or ours in its place, is made of; None for any other object."""
        passed = next((made for made in self._decorated if made.ours is raw), None)
        if passed is not None:
            return passed
        if self.seam is None or not isinstance(raw, FunctionType) or not hasattr(raw, "__wrapped__"):
            return None
        file = raw.__code__.co_filename.replace("\\", "/")
        is_theirs = raw.__code__.co_name == self.seam.code_name and file.endswith(self.seam.file)
        return Made(raw, raw.__wrapped__) if is_theirs else None

    def beneath(self, raw: Any) -> list[Replacement]:
        """What takes such a range out of a function that other decorators have wrapped since; [] for none."""
        function, depth = function_in(raw), 0
        while isinstance(function, FunctionType) and depth < DECORATORS:
            below = function.__dict__.get("__wrapped__")
            made = self.made(below)
            if made is not None:
                *cells, wrapped = in_decorator(function, below, made.upstream, made.inner)
                return [*cells, wrapped] if cells else []
            function, depth = below, depth + 1
        return []

    def silence(self) -> None:
        """What the framework would have without us, also where ours stays held: below decorators of its own."""
        for made in self._decorated:
            if isinstance(made.ours, FunctionType):
                signatures.silence_wrapper(made.ours, made.upstream)

    def changes(self) -> list[Replacement]:
        """The decorator, and where the functions that no target declares are held: to put back what would be there."""
        changes = [] if self.change is None else [self.change]
        for made in self._decorated:
            holder: Any = sys.modules.get(getattr(made.ours, "__module__", ""))
            *parents, last = getattr(made.ours, "__qualname__", "").split(".")
            for part in parents:
                holder = vars(holder).get(part) if isinstance(holder, (ModuleType, type)) else None
            if isinstance(holder, (ModuleType, type)) and vars(holder).get(last) is made.ours:
                changes.append(Replacement(holder, last, made.upstream, made.ours))
        return changes
