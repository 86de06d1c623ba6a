"""A framework's own profiler session with mstx: between its start and stop ranges go to it, balanced and only once."""

from __future__ import annotations

from ..engine.choose import engine
from . import cann
from .balance import Balanced, Calls, balanced


class MstxSession:
    """What one framework's sink, at its `index` in the engine, does between its profiler's start and stop."""

    def __init__(self, index: int, framework: str) -> None:
        self._index, self._framework = index, framework
        self._balanced: Balanced | None = None

    @property
    def is_on(self) -> bool:
        """Does a session record?"""
        return self._balanced is not None

    def start(self, calls: Calls) -> None:
        """Send ranges through `calls` from now on."""
        cann.give_way(self._framework)
        self._balanced = balanced(calls)
        engine.set_sink(self._index, *self._balanced.calls)

    def stop(self, *_: object) -> None:
        """End in the tool what is open there, and send nothing more. As a listener it may be given anything."""
        if self._balanced is not None:
            engine.clear_sink(self._index)
            self._balanced.end_all()
            self.silence()
            cann.take_back(self._framework)

    def silence(self) -> None:
        """Send nothing until the next session starts, no ends either."""
        engine.clear_sink(self._index)
        if self._balanced is not None:
            self._balanced.forget_all()
        self._balanced = None

    def state(self) -> str:
        """What this sink does now, in words."""
        return f"{'on: a' if self.is_on else 'ready: no'} profiler session with mstx records"
