"""The hot path in Python: the same names and the same behaviour as `mstxkit._native.hot`, where that cannot be loaded.

Ranges are in `twin_quick.py` and `twin_ranges.py`, tracks in `twin_tracks.py`, the live file in `twin_bank.py`; here
are the names of the engine, and what switches it. See docs/architecture.md.

Differences that cannot be helped: the clock is CLOCK_MONOTONIC or the fake one; the heartbeat needs the GIL; a range
that is thrown away while open may end only when the garbage collector finds it; a context that was copied without an
event loop (by `Context.run`, say) takes a track of its own from its first range at a new position on; and a child
forked from C, past `os.fork()`, notices it as late, and may until then write into its parent's file.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from .. import livefile, names, segment
from . import (
    twin_attributes,
    twin_bank,
    twin_clock,
    twin_limits,
    twin_quick,
    twin_ranges,
    twin_sinks,
    twin_sites,
    twin_tracks,
    twin_watch,
)
from .twin_bank import Bank, Live
from .twin_driven import Driven, Span
from .twin_quick import is_on, mstx_range, stage, timed
from .twin_ranges import Range
from .twin_sites import Site, intern, stages_seen
from .twin_steps import at_step, current_stage, current_step, stage_times, step
from .twin_watch import set_watch, watch

__all__ = [
    "NATIVE", "Driven", "Range", "Site", "Span", "add_cost", "anchor", "at_step", "attach", "clear_direct",
    "clear_sink", "clock_kind", "count_fault", "counters", "current_stage", "current_step", "detach", "driven",
    "encode_bank", "encode_left", "flush_coalesced", "full_bank", "intern", "is_on", "limit", "mark", "mstx_range",
    "now", "opened", "recording", "release_bank", "rotate", "set_clock", "set_direct", "set_fake_ticks", "set_hooks",
    "set_recording", "set_sink", "set_watch", "site_costs", "stage", "stage_times", "stages_seen", "start_heartbeat",
    "step", "stop_heartbeat", "throttle", "ticks_per_ns", "timed", "wait", "wake", "watch", "watch_site",
]  # fmt: skip

NATIVE = False

_wants_recording = False


# ---- marking ----


def mark(message: Any, /, *, domain: Any = names.DEFAULT_DOMAIN, stream: Any = None, **attributes: object) -> None:
    """An instant."""
    if twin_ranges.is_on:
        twin_ranges.mark(message, domain, stream, attributes)


# ---- wrappers ----


def driven(site: Site, body: Any, stream: Any = None, attributes: dict[str, Any] | None = None) -> Driven:
    """Run a coroutine or generator inside one range of a site."""
    return Driven(Span(twin_quick.general(site, stream, attributes)), body, True)


def opened(site: Site, stream: Any = None, attributes: dict[str, Any] | None = None) -> Span:
    """One range of a site around several pieces of work."""
    return Span(twin_quick.general(site, stream, attributes))


# ---- switching ----


def recording() -> bool:
    """Is anything on?"""
    return twin_ranges.is_on


def set_recording(on: object) -> None:
    """Record from now on, where a live file is attached; or stop."""
    global _wants_recording
    _wants_recording = bool(on) and twin_ranges.live is not None
    _switch()


def _switch() -> None:
    was_on, live = twin_ranges.is_on, twin_ranges.live
    twin_ranges.is_recording = _wants_recording and live is not None
    is_on = twin_ranges.is_recording or twin_sinks.is_any() or twin_watch.is_watching
    twin_ranges.is_on = is_on
    twin_quick.is_quick = twin_ranges.is_recording and not twin_sinks.is_any()
    twin_tracks.renew()
    if was_on is not is_on:
        twin_quick.switch(is_on)


def attach(view: Any, nonce: int) -> None:
    """Write into this live file from now on.

    Raises:
        ValueError: not a buffer laid out by `livefile.lay_out`.
    """
    detach()
    twin_tracks.after_fork()
    live = Live(view, nonce, _activated, _definitions)
    twin_ranges.live = live
    _switch()


def detach() -> None:
    """Let go of the live file; ranges that are open write nothing more."""
    global _wants_recording
    if twin_ranges.live is not None and twin_ranges.live.pid != os.getpid():
        _in_child()
    twin_clock.stop_heartbeat()
    live, twin_ranges.live, twin_quick.bank = twin_ranges.live, None, twin_quick.NO_BANK
    _wants_recording = False
    twin_limits.forget()
    twin_bank.renew_lock()
    _switch()
    if live is not None:
        live.let_go()


def _activated(bank: Bank) -> None:
    """What is kept of positions is about the bank before."""
    twin_quick.bank = bank
    twin_tracks.renew()


def _definitions(live: Live) -> list[tuple[int, int, bytes]]:
    """What a bank has from its beginning: the sites, stages and tracks of what is open."""
    found = {}
    for w1, w2 in live.open_words():
        site, track = twin_sites.site_of(w1 & 0xFFFF), twin_tracks.track_of(w1 >> 16 & 0xFFFF)
        for kind, entry_id, payload in twin_tracks.texts_of(site, track, w2 & 0xFFFF):
            found[kind, entry_id] = payload
    return [(kind, entry_id, payload) for (kind, entry_id), payload in found.items()]


# ---- the sealer's calls ----


def _attached() -> Live:
    live = twin_ranges.live
    if live is None:
        raise ValueError("no such bank: no live file is attached")
    return live


def _checked(index: int) -> int:
    if not 0 <= index < _attached().layout.bank_count:
        raise ValueError("no such bank")
    return index


def rotate() -> bool:
    """Make the active bank full and take the next free one; False when the bank is empty or none is free."""
    live = twin_ranges.live
    with twin_bank.lock:
        return live is not None and bool(live.bank.taken()) and live.rotate()


def full_bank() -> int:
    """The full bank with the lowest sequence number, -1 if none."""
    return -1 if twin_ranges.live is None else twin_ranges.live.full_bank()


def encode_bank(index: int) -> tuple[bytes, bytes, bytes, int, int]:
    """The uncompressed payload parts of a sealed block, as `segment.encode_bank`."""
    live = _attached()
    copied = live.copy_bank(_checked(index))
    with twin_bank.lock:
        twin_limits.count_quick(live)
    return encode_left(*copied)


def encode_left(raw: bytes, text: bytes, salt: int) -> tuple[bytes, bytes, bytes, int, int]:
    """`encode_bank` for a bank that another process left."""
    texts, planes, attributes, n, m = segment.encode_bank(raw, text, salt)
    return texts, planes, attributes, n, m


def release_bank(index: int) -> None:
    """The bank is free again."""
    _attached().release_bank(_checked(index))


def wait(seconds: float) -> bool:
    """Sleep until a bank is full or `wake()`; True when woken."""
    return twin_bank.wait(seconds)


def wake() -> None:
    """Wake who is in `wait`."""
    twin_bank.ring()


# ---- storms and cost ----


def limit(site: Site, coalesce: bool = False, max_depth: int | None = None, max_per_s: int | None = None) -> None:
    """What is beyond these limits is coalesced from now on; without any, nothing is. Not for sites with a stage.

    Raises:
        TypeError: `site` is none.
        ValueError: a limit that is neither None nor an int from 0.
    """
    twin_limits.set_limit(_site(site), coalesce, max_depth, max_per_s)


def throttle(site: Site, on: bool, /) -> None:
    """Coalesce every call of the site, whatever its limits say; or no more.

    Raises:
        TypeError: `site` is none.
    """
    twin_limits.throttle(_site(site), on)


def _site(value: Any) -> Site:
    if type(value) is not Site:
        raise TypeError("a Site was expected")
    return value


def flush_coalesced() -> None:
    """Write what has been added up."""
    twin_limits.flush()


def site_costs() -> list[tuple[Site, int, int, int]]:
    """(site, calls, ns, coalesced calls) of every site with calls, since the process began."""
    return twin_limits.site_costs(twin_ranges.live)


def add_cost(site: Site, ns: float, /) -> None:
    """Something else was done for calls of this site, and took so long."""
    _site(site).cost_ns += ns


# ---- clock ----


def start_heartbeat(seconds: float) -> None:
    """Keep the header's heartbeat and anchors."""
    if twin_ranges.live is not None:
        twin_clock.start_heartbeat(twin_ranges.live.view, seconds, check_age)


def stop_heartbeat() -> None:
    """End the heartbeat thread, and wait for it."""
    twin_clock.stop_heartbeat()


def anchor() -> None:
    """One more anchor in the header, now."""
    if twin_ranges.live is not None:
        livefile.write_anchor(twin_ranges.live.view, twin_clock.take_anchor())


def clock_kind() -> int:
    """1 CLOCK_MONOTONIC, 4 fake."""
    return twin_clock.kind


def set_clock(kind: int) -> None:
    """Choose the clock; only while detached.

    Raises:
        ValueError: a live file is attached, or Python does not have this clock.
    """
    if twin_ranges.live is not None:
        raise ValueError("the clock cannot change while a live file is attached")
    twin_clock.choose(kind)
    twin_quick.clock = twin_clock.now


def set_fake_ticks(n: int) -> None:
    """What the fake clock says."""
    twin_clock.set_fake_ticks(n)
    check_age()


def check_age() -> None:
    """A bank that is old may get durations that do not fit without scaling, which only the general way does."""
    live = twin_ranges.live
    if live is not None and twin_clock.now() - live.bank.origin > twin_ranges.OLD:
        twin_quick.bank = twin_quick.NO_BANK


def now() -> int:
    """Ticks of the clock in use."""
    return twin_clock.now()


def ticks_per_ns() -> float:
    """Ticks of the clock in use per nanosecond: 1.0, both clocks count nanoseconds."""
    return 1.0


# ---- sinks, hooks, counters ----


def set_sink(
    index: int,
    begin: Callable[[str, str], Any],
    end: Callable[[Any, str], object],
    mark: Callable[[str, Any, str], object] | None = None,
    begin_stream: Callable[[str, Any, str], Any] | None = None,
) -> None:
    """Tell this tool of every range and mark from now on.

    Raises:
        ValueError: there is no such sink.
    """
    twin_sinks.set_sink(index, twin_sinks.Sink(begin, end, mark, begin_stream))


def clear_sink(index: int) -> None:
    """Tell it of nothing more but the ends of what it began.

    Raises:
        ValueError: there is no such sink.
    """
    twin_sinks.set_sink(index, None)


def set_direct(addresses: tuple[int, ...]) -> None:
    """mstx by C function addresses: see docs/architecture.md.

    Raises:
        ValueError: one that is needed is missing.
    """
    twin_sinks.set_direct(twin_sinks.Direct(addresses))


def clear_direct() -> None:
    """No mstx any more."""
    twin_sinks.set_direct(None)


def set_hooks(
    describe: Callable[[object, object, object], Any],
    utf8: Callable[[str], bytes],
    fault: Callable[[str, BaseException], object],
    decorate: Callable[[tuple[Any, ...], Any], Any],
) -> None:
    """What the engine needs of the rest of mstxkit."""
    twin_sites.describe, twin_attributes.utf8 = describe, utf8
    twin_ranges.on_fault, twin_ranges.on_decorate = fault, decorate
    twin_sites.make_catch_all()


def watch_site(site: Site, /) -> None:
    """Watch it from now on, as a site with a stage is from the beginning.

    Raises:
        TypeError: `site` is none.
    """
    _site(site).is_watched = True
    twin_tracks.renew()  # positions of the quick way would not tell


def counters() -> dict[str, int]:
    """What was lost, and what there is."""
    live = twin_ranges.live
    counted = twin_bank.counters(live)
    open_now = 0 if live is None else len(live.open_words())
    named = dict(zip(livefile.COUNTERS, counted))
    del named["evicted"]
    return {**named, "sites": twin_sites.count(), "open": open_now}


def count_fault() -> None:
    """One more fault in the header."""
    twin_bank.count(twin_ranges.live, twin_bank.FAULTS)


def _connect() -> None:
    """Tell the parts whom they call."""
    twin_sinks.on_change, twin_sinks.on_fault = _switch, twin_ranges.fault
    twin_watch.on_change, twin_watch.on_fault = _switch, twin_ranges.fault
    twin_bank.oldest_pending = twin_limits.oldest_pending
    twin_tracks.on_contexts, twin_tracks.on_threads = twin_quick.see_contexts, twin_quick.see_threads
    twin_sites.on_capped = lambda: twin_bank.count(twin_ranges.live, twin_bank.NAMES_CAPPED)
    twin_attributes.on_cut = lambda: twin_bank.count(twin_ranges.live, twin_bank.TEXTS_CUT)
    twin_attributes.on_fault = twin_ranges.fault
    twin_ranges.on_old_bank, twin_ranges.on_placed = check_age, twin_quick.placed
    twin_ranges.on_forked = _in_child
    os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    """All is off in a forked child until it is switched on there; nothing of the parent's file is touched."""
    global _wants_recording
    twin_bank.renew_lock()
    twin_limits.forget()
    twin_clock.forget_heartbeat()
    twin_sinks.after_fork()
    twin_watch.after_fork()
    twin_sites.after_fork()
    twin_tracks.after_fork()
    twin_ranges.live, twin_quick.bank, _wants_recording = None, twin_quick.NO_BANK, False
    _switch()


_connect()
