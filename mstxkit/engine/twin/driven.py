"""Coroutines and generators on the Python twin: a range that is on its track only while the body runs.

At a suspension everything that the body has open is parked with it: the caller, or another task, is not inside of it.
At the next resume it is put on the track of whoever resumes. The time between resume and suspension adds up to `busy`.
"""

from __future__ import annotations

from types import CoroutineType, GeneratorType
from typing import Any

from . import clock, ranges, tracks
from .ranges import Open, Range
from .tracks import Node, Track


class Span:
    """One range around several pieces of work, for what has no single body: async generators."""

    __slots__ = (
        "_busy",
        "_epoch",
        "_has_begun",
        "_is_over",
        "_is_running",
        "_opened",
        "_parked",
        "_range",
        "_resumed_at",
    )

    def __init__(self, of: Range) -> None:
        self._range = of
        self._opened: Open | None = None
        self._parked: Track | None = None
        self._epoch: object = None
        self._busy = self._resumed_at = 0
        self._has_begun = self._is_over = self._is_running = False

    def drive(self, awaitable: Any) -> Driven:
        """Run one awaitable inside the span."""
        return Driven(self, awaitable, False)

    def close(self, error: object) -> None:
        """End the span; `error` says whether it failed."""
        if self._has_begun:
            self.end(bool(error))

    @property
    def has_begun(self) -> bool:
        """Was it ever resumed?"""
        return self._has_begun

    def resume(self) -> None:
        """The body runs from here."""
        if self._is_running or self._is_over:
            return
        self._is_running = True
        if self._has_begun:
            self._unpark()
        else:
            self._begin()
        if self._is_open():
            self._resumed_at = clock.now()

    def _begin(self) -> None:
        self._has_begun = True
        opened = self._opened = self._range._begin(True)
        if self._is_over and opened is not None:  # ended by whom a hook or sink let run
            ranges.end(opened, True)

    def suspend(self) -> None:
        """The body runs up to here."""
        if not self._is_running:
            return
        self._is_running = False
        if self._is_open():
            self._busy += clock.now() - self._resumed_at
            self._park()

    def end(self, failed: bool) -> None:
        """End the range. Once."""
        if self._is_over:
            return
        if not self._is_running and self._has_begun:
            self._unpark()
        elif self._is_running and self._is_open():
            self._busy += clock.now() - self._resumed_at
        self._is_running, self._is_over = False, True
        opened = self._opened
        if opened is not None and not opened.is_over:
            opened.busy = max(self._busy, 1)
            ranges.end(opened, failed)

    def take_over(self, opened: Open, busy: int, resumed_at: int, parked: Track | None) -> None:
        """Go on with a range that another way began: it is parked there, or runs."""
        self._has_begun, self._opened = True, opened
        self._busy, self._resumed_at = busy, resumed_at
        self._parked, self._is_running = parked, parked is None

    def _is_open(self) -> bool:
        return self._opened is not None and not self._opened.is_over

    def _node(self) -> Node | None:
        """Where the range is while it is open; None if that is nowhere."""
        return self._opened.node if self._opened is not None and not self._opened.is_over else None

    def _park(self) -> None:
        """Take the range, and all that is open inside it, off its track."""
        bottom = self._node()
        if bottom is None:
            return
        track = bottom.track
        chain = tracks.chain(track.node, bottom)
        if not chain or track is self._parked:
            return
        parked = self._parked = self._parked or Track(bottom.home.id, None)
        bottom.home.parked += 1
        self._epoch = track.epoch
        parked.node, track.node = track.node, bottom.parent
        bottom.parent = parked.root
        _moved(chain, parked, track)
        tracks.left(track)

    def _unpark(self) -> None:
        """Put it all on the track of the thread that resumes."""
        bottom, parked = self._node(), self._parked
        if bottom is None or parked is None or bottom.track is not parked:
            return
        chain = tracks.chain(parked.node, bottom)
        track = tracks.track_here(bottom.home)
        bottom.home.parked -= 1
        bottom.parent = track.node
        track.node, parked.node = parked.node, parked.root
        for node in reversed(chain):
            height, inner = node.parent.height + 1, node.site.own_stage or node.parent.inner
            place = (node.home, node.height, node.inner, self._epoch)
            if (track, height, inner, track.epoch) != place:
                node.children.clear()
            node.height, node.inner = height, inner
        _moved(chain, track, track)

    def __del__(self) -> None:
        try:
            if self._has_begun:
                self.end(True)
        except Exception:
            pass  # the interpreter is going away


def _moved(chain: list[Node], to: Track, where: Track) -> None:
    """Where a stage was parked or put back, tasks created from here on inherit another one."""
    for node in chain:
        node.track = to
    if any(node.site.own_stage for node in chain):
        tracks.stage_changed(where)


_FINISHED = iter(())


class Driven:
    """Runs a coroutine or generator inside one range, from its first resume to its return, raise or close."""

    __slots__ = ("__weakref__", "_body", "_ends_span", "_span")

    def __init__(self, span: Span, body: Any, ends_span: bool) -> None:
        self._span, self._ends_span = span, ends_span
        self._body = _resumable(body)

    def __await__(self) -> Driven:
        return self

    def __iter__(self) -> Driven:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Resume the body with a value."""
        if value is None and not hasattr(self._body, "send"):
            return self._run(self._body.__next__)
        return self._run(self._body.send, value)

    def throw(self, *error: Any) -> Any:
        """Resume the body with an exception."""
        try:
            return self._run(self._body.throw, *error)
        finally:
            # An exception that leaves keeps this frame: with the exception in it, that would be a cycle.
            error = ()

    def _run(self, resume: Any, *args: Any) -> Any:
        self._span.resume()
        try:
            result = resume(*args)
        except StopIteration:
            self._stop(False)
            raise
        except BaseException as exc:
            self._stop(not isinstance(exc, GeneratorExit))
            raise
        finally:
            resume, args = None, ()
        self._span.suspend()
        return result

    def _stop(self, failed: bool) -> None:
        if self._ends_span:
            self._span.end(failed)
        else:
            self._span.suspend()
            # Else the exception that comes out keeps, by way of this frame, what was thrown into the body.
            self._body = _FINISHED

    def close(self) -> None:
        """Close the body, and the range with it."""
        if self._span.has_begun:
            self._span.resume()
        try:
            self._body.close()
        except BaseException:
            self._closed(True)
            raise
        self._closed(False)

    def _closed(self, failed: bool) -> None:
        if not self._ends_span:
            self._span.suspend()
        elif self._span.has_begun:
            self._span.end(failed)

    def __del__(self) -> None:
        try:
            self._body = None  # its frames leave their ranges first
            if self._ends_span and self._span.has_begun:
                self._span.end(True)
        except Exception:
            pass  # the interpreter is going away


def _resumable(body: Any) -> Any:
    """What has send, throw and close: the body itself, or what its `__await__` or `__iter__` gives."""
    if isinstance(body, (CoroutineType, GeneratorType)):
        return body
    find = getattr(type(body), "__await__", None)
    return iter(body) if find is None else find(body)
