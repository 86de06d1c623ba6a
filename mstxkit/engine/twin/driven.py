"""Coroutines and generators: a range that is on its track only while the body runs.

At a suspension everything that the body has open is parked with it: the caller, or another task, is not inside of it.
At the next resume it is put on the track of whoever resumes. The time between resume and suspension adds up to `busy`.
"""

from __future__ import annotations

from types import CoroutineType, GeneratorType
from typing import Any

from . import clock, tracks
from .interruptions import begins_with_try
from .ranges import Range
from .tracks import Opened, Track


class Span:
    """One range around several pieces of work, for what has no single body: async generators."""

    def __init__(self, of: Range) -> None:
        self._range, self._parked, self._resumed_at = of, Track(0), 0
        self.has_begun = self._is_over = self._is_running = False

    def drive(self, awaitable: Any) -> Driven:
        """Run one awaitable inside the span."""
        return Driven(self, awaitable, False)

    def close(self, error: object) -> None:
        """End the span; `error` says whether it failed."""
        self.end(bool(error))

    def _open_range(self) -> Opened | None:
        """The range while it is open; None where everything was off at its begin."""
        return self._range._entries[0] if self._range._entries else None

    def resume(self) -> None:
        """The body runs from here."""
        if True in (self._is_running, self._is_over):
            return
        self._resumed_at, self._is_running = clock.now(), True
        is_first, self.has_begun = not self.has_begun, True
        if is_first:
            self._range.__enter__(True)
        opened = self._open_range()
        if opened is not None:
            opened.is_body = True
            tracks.unpark(opened, self._parked)
        if is_first and self._is_over:  # ended by whom a hook or sink let run
            self._range.__exit__(RuntimeError)
        self._resumed_at = clock.now()

    def suspend(self) -> None:
        """The body runs up to here."""
        opened = self._open_range()
        if opened is not None:
            self._count_busy(opened)
            tracks.park(opened, self._parked)
        self._is_running = False

    def _count_busy(self, opened: Opened) -> None:
        if self._is_running:
            self._is_running = False
            opened.busy += clock.now() - self._resumed_at

    @begins_with_try
    def end(self, failed: bool) -> None:
        """End the range, where it has begun. Once."""
        try:
            opened = self._open_range()
            if opened is not None and not self._is_over:
                self._count_busy(opened)
                tracks.unpark(opened, self._parked)
        finally:
            if self.has_begun and not self._is_over:
                self._is_over, self._is_running = True, False
                if self._range._entries:
                    self._range.__exit__(RuntimeError if failed else None)


_FINISHED = iter(())


class Driven:
    """Runs a coroutine or generator inside one range, from its first resume to its return, raise or close."""

    # Python lets go of them in this order: the body's frames leave their ranges before its own is thrown away.
    __slots__ = ("__weakref__", "_body", "_ends_span", "_span")

    def __init__(self, span: Span, body: Any, ends_span: bool) -> None:
        self._span, self._ends_span, self._body = span, ends_span, body
        if not isinstance(body, (CoroutineType, GeneratorType)):  # they have send, throw and close
            find = getattr(type(body), "__await__", None) or iter
            self._body = find(body)

    def __await__(self) -> Driven:
        return self

    __iter__ = __await__

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Resume the body with a value."""
        if value is None and not hasattr(self._body, "send"):
            return self._resume_body(self._body.__next__)
        return self._resume_body(self._body.send, value)

    def throw(self, *error: Any) -> Any:
        """Resume the body with an exception."""
        try:
            return self._resume_body(self._body.throw, *error)
        finally:
            # An exception that leaves keeps this frame: with the exception in it, that would be a cycle.
            error = ()

    def _resume_body(self, resume: Any, *args: Any) -> Any:
        try:
            self._span.resume()
            result = resume(*args)
            self._span.suspend()
            return result
        except BaseException as exc:
            self._stop_body(not isinstance(exc, (StopIteration, GeneratorExit)))
            raise
        finally:
            resume, args = None, ()

    @begins_with_try
    def _stop_body(self, failed: bool) -> None:
        try:
            self._leave_span(failed)
        finally:
            self._leave_span(failed)  # where the first time was interrupted
        if not self._ends_span:
            # Else the exception that comes out keeps, by way of this frame, what was thrown into the body.
            self._body = _FINISHED

    def _leave_span(self, failed: bool) -> None:
        if self._ends_span:
            self._span.end(failed)
        else:
            self._span.suspend()

    def close(self) -> None:
        """Close the body, and the range with it."""
        failed = True
        try:
            if self._span.has_begun:
                self._span.resume()
            self._body.close()
            failed = False
        finally:
            self._leave_span(failed)
