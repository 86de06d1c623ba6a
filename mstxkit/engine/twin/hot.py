"""The hot path in Python: the names and the behaviour of `mstxkit.engine.native.hot`, where that cannot be loaded.

Ranges are in `quick.py` and `ranges.py`, tracks in `tracks.py`, the live file in `banks.py`; here
are the names of the engine, and what switches it. See docs/internals/engine.md.

Differences that cannot be helped: the clock is CLOCK_MONOTONIC or the fake one; the heartbeat needs the GIL; a range
that is thrown away while open may end only when the garbage collector finds it; a context that was copied without an
event loop (by `Context.run`, say) takes a track of its own from its first range at a new position on; and a child
forked from C, past `os.fork()`, notices it as late, and may until then write into its parent's file.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from ...host import names
from ...store import livefile
from ...store.segment import encode_bank as encode_left
from ...store.text_columns import to_columns as text_columns
from ..plain_paths import stored
from . import banks, clock, encoding, limits, quick, ranges, sinks, sites, sums, tracks
from . import watch as watching
from .banks import Bank, Live, wait
from .banks import ring as wake
from .clock import stop_heartbeat
from .driven import Driven, Span
from .limits import flush as flush_coalesced
from .limits import limit, throttle
from .quick import is_on, mstx_range, stage, timed
from .ranges import Range
from .sealing import bank_texts, encode_bank, encode_into, full_bank, release_bank
from .sinks import clear_direct, clear_sink, set_direct, set_sink
from .sites import Site, intern, stages_seen
from .steps import (
    at_step,
    carried,
    carry,
    current_stage,
    current_step,
    process_step,
    stage_keys,
    stage_times,
    stage_waits,
    step,
    take_summaries,
)  # fmt: skip
from .watch import await_first, set_watch, watch

__all__ = [
    "NATIVE", "Driven", "Range", "Site", "Span", "add_cost", "anchor", "at_step", "attach", "await_first", "bank_texts",
    "carried", "carry", "clear_direct", "clear_sink", "clock_kind", "count_fault", "counters", "current_stage",
    "current_step", "detach", "driven", "encode_bank", "encode_into", "encode_left", "flush_coalesced", "full_bank",
    "intern", "is_on", "limit", "mark", "mstx_range", "now", "opened", "process_step", "recording", "release_bank",
    "rotate", "set_clock", "set_direct", "set_fake_ticks", "set_hooks", "set_recording", "set_sink", "set_watch",
    "site_costs", "stage", "stage_keys", "stage_times", "stage_waits", "stages_seen", "start_heartbeat", "step",
    "stop_heartbeat", "stored", "take_summaries", "text_columns", "throttle", "ticks_per_ns", "timed", "wait",
    "wait_for_records", "wake", "watch", "watch_site",
]  # fmt: skip

NATIVE = False

_wants_recording = False
# At most so long does a process sleep that has recorded nothing: no thread but its own could see that it does again.
_LOOKS_EVERY_S = 2.5


# ---- marking ----


def mark(message: Any, /, *, domain: Any = names.DEFAULT_DOMAIN, stream: Any = None, **attributes: object) -> None:
    """An instant, inside of what is open.

    Args:
        message: What reports and traces call it.
        domain: mstx domain.
        stream: Device stream, for mstx.
        attributes: As those of `mstx_range`.

    Cost: it reads the clock once, a range twice.

    Example:
        >>> from mstxkit import mark
        >>> mark("checkpoint written", bytes=1 << 20)
    """
    if ranges.is_on:
        ranges.mark(message, domain, stream, attributes)


# ---- wrappers ----


def driven(site: Site, body: Any, stream: Any = None, attributes: dict[str, Any] | None = None) -> Any:
    """Run a coroutine or generator inside one range of a site."""
    if quick.is_quick and stream is None:
        made = quick.driven(site, body, attributes)
        if made is not None:
            return made
    return Driven(Span(quick.general(site, stream, attributes)), body, True)


def opened(site: Site, stream: Any = None, attributes: dict[str, Any] | None = None) -> Span:
    """One range of a site around several pieces of work."""
    return Span(quick.general(site, stream, attributes))


# ---- switching ----


def recording() -> bool:
    """Is anything on?"""
    return ranges.is_on


def set_recording(on: object) -> None:
    """Record from now on, where a live file is attached; or stop."""
    global _wants_recording
    _wants_recording = bool(on) and ranges.live is not None
    _switch()


def _switch() -> None:
    was_on, live = ranges.is_on, ranges.live
    ranges.is_recording = _wants_recording and live is not None
    is_on = ranges.is_recording or sinks.is_any() or watching.is_watching or watching.is_awaited
    ranges.is_on = is_on
    quick.is_quick = ranges.is_recording and not sinks.is_any() and not watching.is_awaited
    tracks.renew()
    if was_on is not is_on:
        quick.switch(is_on)


def attach(view: Any, nonce: int) -> None:
    """Write into this live file from now on.

    Raises:
        ValueError: not a buffer laid out by `livefile.lay_out`.
    """
    from . import bodies, typed  # what is not needed before

    detach()
    quick.first_typed, quick.wrappers_typed = typed.first_range, typed.wrappers_range
    quick.driven = bodies.quick_driven
    tracks.after_fork()
    sums.forget(sites.stages())
    live = Live(view, nonce, _activated, _definitions)
    ranges.live = live
    _switch()


def detach() -> None:
    """Let go of the live file; ranges that are open write nothing more."""
    global _wants_recording
    if ranges.live is not None and ranges.live.pid != os.getpid():
        _in_child()
    stop_heartbeat()
    live, ranges.live, quick.bank = ranges.live, None, quick.NO_BANK
    if live is not None:
        with banks.lock:
            limits.count_quick(live)
    _wants_recording = False
    limits.forget()
    banks.renew_lock()
    _switch()
    if live is not None:
        live.let_go()


def _activated(bank: Bank) -> None:
    """What is kept of positions is about the bank before."""
    quick.bank = bank
    tracks.renew()


def _definitions(live: Live) -> tuple[list[tuple[int, int, bytes]], list[tuple[int, int, bytes]]]:
    """What a bank has from its beginning: the sites, stages and tracks of what is open; and of what is kept, which a
    thread may have begun in the middle of its quick way, where nobody sees it yet.
    """
    payloads, words, by_id = {}, live.open_words(), tracks.by_id()
    for w1, w2 in words:
        site, track = sites.site_of(w1 & 0xFFFF), by_id[w1 >> 16 & 0xFFFF]
        for kind, entry_id, payload in tracks.texts_of(site, track, w2 & 0xFFFF):
            payloads[kind, entry_id] = payload
    kept = dict.fromkeys(entry for track in by_id for node in tuple(track.kept) for entry in node.texts)
    return [(kind, entry_id, payload) for (kind, entry_id), payload in payloads.items()], list(kept)


# ---- the sealer's calls ----


def rotate() -> bool:
    """Make the active bank full and take the next free one; False when the bank is empty or none is free."""
    live = ranges.live
    with banks.lock:
        return live is not None and bool(live.bank.taken()) and live.rotate()


def wait_for_records(seconds: float) -> bool:
    """As `wait`; what is recorded meanwhile is looked at by who calls this, every few seconds."""
    return wait(min(seconds, _LOOKS_EVERY_S))


# ---- storms and cost ----


def site_costs() -> list[tuple[Site, int, int, int]]:
    """(site, calls, ns, coalesced calls) of every site with calls, since the process began."""
    return limits.site_costs(ranges.live)


def add_cost(site: Site, ns: float, /) -> None:
    """Something else was done for calls of this site, and took so long."""
    sites.checked(site).cost_ns += ns


# ---- clock ----


def start_heartbeat(seconds: float) -> None:
    """Keep the header's heartbeat and anchors."""
    if ranges.live is not None:
        clock.start_heartbeat(ranges.live.view, seconds, check_age)


def anchor() -> None:
    """One more anchor in the header, now."""
    if ranges.live is not None:
        livefile.write_anchor(ranges.live.view, clock.take_anchor())


def clock_kind() -> int:
    """1 CLOCK_MONOTONIC, 4 fake."""
    return clock.kind


def set_clock(kind: int) -> None:
    """Choose the clock; only while detached.

    Raises:
        ValueError: a live file is attached, or Python does not have this clock.
    """
    if ranges.live is not None:
        raise ValueError("the clock cannot change while a live file is attached")
    clock.choose(kind)
    quick.clock = clock.now


def set_fake_ticks(n: int) -> None:
    """What the fake clock says."""
    clock.set_fake_ticks(n)
    check_age()


def check_age() -> None:
    """A bank that is old may get durations that do not fit without scaling, which only the general way does."""
    live = ranges.live
    if live is not None and clock.now() - live.bank.origin > ranges.OLD:
        quick.bank = quick.NO_BANK


def now() -> int:
    """Ticks of the clock in use."""
    return clock.now()


def ticks_per_ns() -> float:
    """Ticks of the clock in use per nanosecond: 1.0, both clocks count nanoseconds."""
    return 1.0


# ---- hooks, counters ----


def set_hooks(
    describe: Callable[[object, object, object], Any],
    utf8: Callable[[str], bytes],
    fault: Callable[[str, BaseException], object],
    decorate: Callable[[tuple[Any, ...], Any], Any],
    unpickle: Callable[[str, Any, Any], Any] | None = None,
) -> None:
    """What the engine needs of the rest of mstxkit; `unpickle` None leaves that one as it is."""
    sites.unpickle = unpickle or sites.unpickle
    sites.describe, encoding.utf8 = describe, utf8
    ranges.on_fault, ranges.on_decorate = fault, decorate
    sites.make_catch_all()


def watch_site(site: Site, /) -> None:
    """Watch it from now on, as a site with a stage is from the beginning.

    Raises:
        TypeError: `site` is none.
    """
    sites.checked(site).is_watched = True
    tracks.renew()  # positions of the quick way would not tell


def counters() -> dict[str, int]:
    """What was lost, and what there is."""
    live = ranges.live
    counted = banks.counters(live)
    open_now = 0 if live is None else len(live.open_words())
    named = dict(zip(livefile.COUNTERS, counted))
    del named["evicted"]
    named["summaries_lost"] = sums.state.lost
    return {**named, "sites": sites.count(), "open": open_now}


def count_fault() -> None:
    """One more fault in the header."""
    banks.count(ranges.live, banks.FAULTS)


def _connect() -> None:
    """Tell the parts whom they call."""
    sinks.on_change, sinks.on_fault = _switch, ranges.fault
    watching.on_change, watching.on_fault = _switch, ranges.fault
    banks.oldest_pending = limits.oldest_pending
    tracks.on_contexts, tracks.on_threads = quick.see_contexts, quick.see_threads
    sites.on_capped = lambda: banks.count(ranges.live, banks.NAMES_CAPPED)
    encoding.on_cut = lambda: banks.count(ranges.live, banks.TEXTS_CUT)
    encoding.on_fault = ranges.fault
    ranges.on_old_bank, ranges.on_placed = check_age, quick.placed
    ranges.on_forked = _in_child
    os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    """All is off in a forked child until it is switched on there; nothing of the parent's file is touched."""
    global _wants_recording
    banks.renew_lock()
    limits.forget()
    clock.forget_heartbeat()
    sinks.after_fork()
    watching.after_fork()
    sites.after_fork()
    tracks.leave_all()
    tracks.after_fork()
    ranges.live, quick.bank, _wants_recording = None, quick.NO_BANK, False
    _switch()


_connect()
