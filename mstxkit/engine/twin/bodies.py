"""Coroutines and generators on the Python twin, the quick way: one generator of ours around each body.

`driven.py` says what happens at a suspension. Here the body has nothing open inside of it then, and is resumed where it
was suspended: the range is taken off its track and put back by one store each. Whatever is not so goes on the general
way, in a `Span`, from that moment on.

A position of a body is nobody else's while the body lives: its parent has it among its children, as the site's
`body_key`, only in between.
"""

from __future__ import annotations

import os
from types import CoroutineType, GeneratorType
from typing import Any, Callable, Generator

from . import limits, quick, ranges, tracks, watch
from .banks import Live
from .driven import Driven, Span
from .ranges import Open
from .sites import Site
from .tracks import Node, Track
from .writers import NOTHING, write_body, write_plain_body

# What a body takes beyond a plain range.
_dearer_ns = 1.5 * limits.cost_of_quick()
_track_now, _restore, _set_track = tracks.track_calls


def quick_driven(site: Site, body: Any, attributes: dict[str, Any] | None) -> Any:
    """Run a coroutine or generator inside one range of a site; None for what is neither."""
    kind = type(body)
    if kind is not CoroutineType and kind is not GeneratorType:
        return None
    made = _new(QuickDriven)
    made._site, made._body, made._attributes = site, body, attributes
    made._driver = None
    return made


class QuickDriven:
    """As `Driven`, which it becomes where it is not awaited or iterated but resumed directly."""

    __slots__ = ("__weakref__", "_attributes", "_body", "_driver", "_site")

    _attributes: Any
    _body: Any
    _driver: Any
    _site: Site

    def __await__(self) -> Any:
        if self._driver is None:
            body, self._body = self._body, None
            self._driver = driver = _drive(self._site, body, self._attributes)
            return driver
        return self._driver

    __iter__ = __await__

    def _direct(self) -> Any:
        if self._driver is None:
            body, self._body = self._body, None
            self._driver = Driven(Span(quick.general(self._site, None, self._attributes)), body, True)
        return self._driver

    def __next__(self) -> Any:
        return self._direct().send(None)

    def send(self, value: Any) -> Any:
        """Resume the body with a value."""
        return self._direct().send(value)

    def throw(self, *error: Any) -> Any:
        """Resume the body with an exception."""
        try:
            return self._direct().throw(*error)
        finally:
            error = ()  # see `Driven.throw`

    def close(self) -> None:
        """Close the body, and the range with it."""
        self._direct().close()


_new: Callable[[type[QuickDriven]], QuickDriven] = object.__new__


def _drive(site: Site, body: Any, attributes: Any) -> Generator[Any, Any, Any]:
    """Hands on send, throw, close and what the body returns, as `yield from` does.

    A value that is handed on is kept nowhere here, nor is an exception: that would be a cycle through its traceback.
    """
    try:
        track = _track_now()
        if quick.has_contexts:
            _restore(track.token)
            track.token = _set_track(track)
        node = track.node.children.pop(site.body_key)
        clock, words = quick.clock, node.words
        start = resumed = clock()
        words[node.start_at] = start  # the rest of its slot is as it was: nobody else has it
        words[node.mark_at] = start ^ node.key or 1
    except Exception:
        node = _position(site)
        if node is None:
            return (yield from Driven(Span(quick.general(site, None, attributes)), body, True))
        track, clock, words = node.track, quick.clock, node.words
        start = resumed = clock()
        _begin(node, start)
    send, epoch = body.send, track.epoch
    parent, resume, span, argument, thrown = node.parent, send, None, None, None
    busy, is_parked, failed, is_over = 0, False, True, False
    try:
        track.node = node
        while True:
            try:
                result = resume(argument)
            except StopIteration as stop:
                failed = False
                try:
                    if span is None and node.bank is quick.bank and track.node is node:
                        end = clock()
                        write, values = (write_body, attributes) if attributes else (write_plain_body, NOTHING)
                        is_over = write(node, start, end, values, busy + end - resumed or 1)
                        if is_over:
                            track.node = parent
                            words[node.mark_at] = 0
                            site.cost_ns += _dearer_ns
                            if node.is_kept and track.epoch is epoch:
                                parent.children[site.body_key] = node
                            else:
                                _forgotten(node)
                except Exception:
                    pass  # the bank is full, or let go of: the general way, where nothing was written
                return stop.value
            if span is None and track.node is node:
                busy += clock() - resumed
                track.node = parent
                track.parked += 1
                is_parked = True
            else:
                span = span or _lifted(site, node, start, attributes, busy, resumed, False)
                span.suspend()
            try:
                argument = yield (result, result := None)[0]
                resume = send
            except BaseException as exc:
                thrown = exc
            if span is None:
                try:
                    if quick.has_contexts:
                        _restore(track.token)
                        track.token = _set_track(track)
                    if track.node is parent and _track_now() is track:
                        track.parked -= 1
                        is_parked = False
                        track.node = node
                        if track.epoch is not epoch:
                            epoch = _renewed(node)
                except Exception:
                    pass
                if is_parked:
                    span = _lifted(site, node, start, attributes, busy, resumed, True)
                    is_parked = False
            if span is not None:
                span.resume()
            resumed = clock()
            if thrown is not None:
                resume, argument, thrown = body.throw, thrown, None
                if isinstance(argument, GeneratorExit):
                    body.close()
                    failed = False
                    raise argument
    except GeneratorExit:
        failed = False
        raise
    finally:
        argument = thrown = None
        if not is_over:
            _end(site, node, start, attributes, busy, resumed, is_parked, span, failed)


def _forgotten(node: Node) -> None:
    """What a position was worked out from has changed: the next body at this place works it out anew."""
    tracks.forget(node)
    tracks.give_slot_back(node)


def _position(site: Site) -> Node | None:
    """A position of a body that begins here, with its slot; None where it has to go the general way."""
    recorder = ranges.live
    if not quick.is_quick or recorder is None or recorder.pid != os.getpid() or site.own_stage:
        return None
    if len(recorder.free) <= recorder.stage_slots or site.limits is not None or (watch.is_watching and site.is_watched):
        return None
    track = tracks.track_here()
    if track.node is track.root and not track.is_own:
        return None  # a task's, which must not be kept
    node = ranges.position(track.node, site, recorder, True)
    if not _is_kept(node, recorder):
        tracks.give_slot_back(node)
        return None
    ranges.on_placed(node, recorder)
    return node


def _is_kept(node: Node, live: Live) -> bool:
    """As `tracks.keep`; but a body's position is not among its parent's while the body lives."""
    if node.slot is None or node.depth >= tracks.KEPT_DEPTH or node.epoch is not tracks.epoch:
        return False
    if 2 * len(live.free) < live.layout.slot_count:
        tracks.renew()
        return False
    node.is_kept = True
    node.track.kept.append(node)
    return True


def _begin(node: Node, start: int) -> None:
    """Fill the slot. Where the live file was let go of meanwhile, nothing is written at the end either."""
    try:
        ranges.fill_slot(node, start)
        if not node.is_kept and node.live is not None:  # another thread has rotated: the new bank must know it
            node.live.define_here(node.texts)
    except ValueError:
        pass


def _renewed(node: Node) -> object:
    """What was worked out for it and for what is inside of it does not hold any more."""
    tracks.forget(node)
    node.children.clear()
    node.inner, node.height = node.parent.inner, node.parent.height + 1
    return node.track.epoch


def _lifted(site: Site, node: Node, start: int, attributes: Any, busy: int, resumed: int, is_parked: bool) -> Span:
    """Go on the general way with a range that is open: it runs, or is parked."""
    span = Span(quick.general(site, None, attributes))
    opened = Open(site, node, start, attributes if type(attributes) is dict else None)
    site.calls += 1
    tracks.forget(node)
    if not is_parked:
        span.take_over(opened, busy, resumed, None)
        return span
    parked = Track(node.home.id, None)
    parked.node, node.parent, node.track = node, parked.root, parked
    span.take_over(opened, busy, resumed, parked)
    return span


def _end(
    site: Site, node: Node, start: int, attributes: Any, busy: int, resumed: int, is_parked: bool, span: Span | None,
    failed: bool,
) -> None:  # fmt: skip
    """The general way, whatever has ended it."""
    try:
        if span is None:
            span = _lifted(site, node, start, attributes, busy, resumed, is_parked)
        span.end(failed)
    except Exception as exc:
        ranges.fault("range.end", exc)
