"""The hot path in Python: the names and the behaviour of `mstxkit.engine.native.hot`, as docs/internals/engine.md says.

Differences that cannot be helped: a range costs about a hundred times what it costs C; the clock is CLOCK_MONOTONIC or
the fake one; the heartbeat needs the GIL; a context that was copied without an event loop (by `Context.run`, say) takes
a track of its own from its first range on; and a child forked from C, past `os.fork()`, notices it with its first
range.
"""

from __future__ import annotations

import os
import threading
from contextvars import ContextVar
from typing import Any, Callable

from ...host import names
from ...store import livefile, records
from ..plain_paths import stored
from . import banks, clock, interruptions, listeners, ranges, sites, sums, tracks
from .banks import ring as wake
from .banks import wait
from .clock import set_fake_ticks, stop_heartbeat
from .driven import Driven, Span
from .limits import flush as flush_coalesced
from .limits import limit, site_costs, throttle
from .listeners import await_first, clear_direct, clear_sink, set_direct, set_sink, set_watch, watch
from .ranges import Range, mark
from .sites import Site, add_cost, intern, stage_keys, stage_waits, stages_seen, watch_site
from .steps import at_step, carried, carry, current_stage, current_step, process_step, stage_times, step, take_summaries
from .tracks import first_step

NATIVE = False
Hook = Callable[..., Any]
_UNGIVEN: Any = object()


def mstx_range(
    name: Any = _UNGIVEN, /, *, stage: Any = None, domain: Any = None, stream: Any = None, **attributes: Any
) -> Any:
    """A range: `with`, `async with`, or as a decorator. It never raises, and never hides what the body raises.

    Called as `mstx_range(name, *, stage=None, domain="default", stream=None, **attributes)`.
    """
    return _make_range("name", name, stage, domain, stream, attributes)


def stage(key: Any = _UNGIVEN, /, *, domain: Any = None, stream: Any = None, **attributes: Any) -> Any:
    """A range that is the stage `key`: reports total it by step and rank, and escalation looks it up.

    Called as `stage(key, *, domain="default", stream=None, **attributes)`.
    """
    return _make_range("key", key, None, domain, stream, attributes)


def _make_range(keyword: str, name: Any, stage: Any, domain: Any, stream: Any, attributes: dict[str, Any]) -> Any:
    """A range, or what it decorates where that is given in place of a name. A stage's name is its key, too."""
    if name is _UNGIVEN:
        if keyword not in attributes:
            raise TypeError(f"a range needs a {keyword}")
        name = attributes.pop(keyword)
    made = Range(name, name if keyword == "key" else stage, domain, stream, attributes)
    return made(name) if type(name) in names.FUNCTIONS else made


def is_on(site: object = None) -> bool:
    """Is anything on? What a wrapper asks first."""
    return listeners.on != 0


recording = is_on


def timed(site: Site, stream: Any = None, attributes: Any = None) -> Range:
    """A range of a site, for one `with`: with neither stream nor attributes, not to be kept after its end."""
    attributes = attributes if type(attributes) is dict else None
    return Range(site.name, site.stage, site.domain, stream, attributes, site)


def driven(site: Site, body: Any, stream: Any = None, attributes: dict[str, Any] | None = None) -> Driven:
    """Run a coroutine or generator inside one range of a site."""
    return Driven(opened(site, stream, attributes), body, True)


def opened(site: Site, stream: Any = None, attributes: dict[str, Any] | None = None) -> Span:
    """One range of a site around several pieces of work."""
    return Span(timed(site, stream, attributes))


def set_recording(on: object) -> None:
    """Record from now on, where a live file is attached; or stop."""
    tracks.first_said = None if on else tracks.first_said
    listeners.switch(listeners.RECORD, bool(on) and banks.live is not None)


def attach(view: Any, nonce: int) -> None:
    """Write into this live file from now on."""
    detach()
    sums.forget(sites.stages())
    banks.live = banks.Live(view, nonce)


def detach() -> None:
    """Let go of the live file; ranges that are open write nothing more."""
    if banks.live is not None and banks.live.pid != os.getpid():
        _in_child()
    stop_heartbeat()
    set_recording(False)
    live, banks.live = banks.live, None
    if live is not None:
        with banks.Turn():  # what still refers to it fails with ValueError
            live.words.release()
            live.view.release()


def rotate() -> bool:
    """Make the active bank full and take the next free one; False when the bank is empty or none is free."""
    live = banks.live
    with banks.Turn():
        return live is not None and bool(live.bank.count) and live.rotate()


def full_bank() -> int:
    """The full bank with the lowest sequence number, -1 if none."""
    live: banks.Live | None = banks.live
    if live is None:
        return -1
    full = [index for index in range(live.layout.bank_count) if live.state(index) == livefile.FULL]
    return min(full, key=lambda index: live.words[live.layout.bank_at(index) // 8], default=-1)


def encode_bank(index: int) -> Any:
    """The uncompressed payload parts of a sealed block, as `segment.encode_bank`."""
    live = _with_bank(index)
    bank = livefile.read_bank(live.view, live.layout, index)
    return encode_left(b"", b"", 0) if bank is None else encode_left(bank.raw, bank.text, bank.salt)


def encode_left(raw: bytes, texts: bytes, salt: int) -> Any:
    """`encode_bank` for a bank that another process left."""
    from ...store import segment  # not for the import of mstxkit

    return segment.encode_bank(raw, texts, salt)


def text_columns(texts: bytes) -> bytes | None:
    """A bank's texts as columns; None where they are not what a bank has."""
    from ...store import text_columns  # as above

    return text_columns.to_columns(texts)


def encode_into(index: int, room: bytearray, at: int) -> tuple[int, int, Any]:
    """Planes and attributes of a full bank, into room from `at` on: how many there are, and what they reach over."""
    payload = encode_bank(index)
    content = b"".join((payload.planes, payload.attributes))
    if at < 0 or at + len(content) > len(room):
        raise ValueError("no room for all of the bank's records")
    room[at : at + len(content)] = content
    return payload.n, payload.m, payload.extent


def bank_texts(index: int) -> bytes:
    """The texts of a full bank, as `encode_bank` gives them."""
    live = _with_bank(index)
    bank = livefile.read_bank(live.view, live.layout, index)
    return b"" if bank is None else livefile.without_checksums(bank.text)


def release_bank(index: int) -> None:
    """The bank is free again; where there was none to rotate into, records may go on."""
    live = _with_bank(index)
    if live.state(index) == livefile.FULL:  # in the middle of a rotation `live.bank` is still the full one
        live.state(index, livefile.FREE)


def _with_bank(index: int) -> banks.Live:
    live: banks.Live | None = banks.live
    if live is None or not 0 <= index < live.layout.bank_count:
        raise ValueError("no such bank" if live is not None else "no such bank: no live file is attached")
    return live


def wait_for_records(seconds: float) -> bool:
    """As `wait`, but not for long: nobody but who calls this could see what is recorded meanwhile."""
    return wait(min(seconds, 2.5))


def start_heartbeat(seconds: float) -> None:
    """Keep the header's heartbeat and anchors."""
    if banks.live is not None:
        clock.start_heartbeat(banks.live.view, seconds)


def anchor() -> None:
    """One more anchor in the header, now."""
    if banks.live is not None:
        clock.write_anchor(banks.live.view)


def now() -> int:
    """Ticks of the clock in use."""
    return clock.now()


def clock_kind() -> int:
    """1 CLOCK_MONOTONIC, 4 fake."""
    return clock.kind


def set_clock(kind: int) -> None:
    """Choose the clock; only while detached."""
    if banks.live is not None:
        raise ValueError("the clock cannot change while a live file is attached")
    clock.choose(kind)


def ticks_per_ns() -> float:
    """Ticks of the clock in use per nanosecond: 1.0, both clocks count nanoseconds."""
    return 1.0


def set_hooks(describe: Hook, utf8: Hook, fault: Hook, decorate: Hook, unpickle: Hook | None = None) -> None:
    """What the engine needs of the rest of mstxkit; `unpickle` None leaves that one as it is."""
    sites.unpickle = unpickle or sites.unpickle
    sites.describe, banks.utf8 = describe, utf8
    interruptions.on_fault, ranges.on_decorate = fault, decorate
    sites.intern(records.CATCH_ALL)  # the site of names beyond the limit: the first of all


def counters() -> dict[str, int]:
    """What was lost, and what there is."""
    live = banks.live
    counted = banks.detached_counters if live is None else live.words[banks.COUNTERS_AT : banks.COUNTERS_AT + 8]
    named = {name: count for name, count in zip(livefile.COUNTERS, counted) if name != "evicted"}
    is_open = 0 if live is None else len(live.open)
    return {**named, "summaries_lost": sums.state.lost, "sites": len(sites.by_id), "open": is_open}


def count_fault() -> None:
    """One more fault in the header."""
    banks.count(banks.FAULTS)


def _in_child() -> None:
    """A forked child touches nothing of its parent's file, tells its tools and hooks nothing, and is inside of nothing.

    All is off until it is switched on there. The thread that goes on has another id.
    """
    banks.lock, banks.live, clock.beat = threading.RLock(), None, None
    listeners.on, listeners.process, listeners.sinks = 0, object(), [None] * len(listeners.sinks)
    listeners.set_watch(None, None, None)
    listeners.await_first(None)
    for table in (sites.seen, *(table for stage in sites.stages() for table in (stage.sums, stage.open, stage.times))):
        table.clear()
    tracks.step, tracks.ambient = records.NO_STEP, ContextVar("mstxkit.ambient", default=(None, None))
    for track in tracks.tracks:
        track.open, track.stage, track.at, track.parked = [], None, None, set()
    life = tracks.life_here()
    life.os_id = threading.get_native_id() & 0xFFFFFFFF
    for track in [track for track in tracks.tracks if track.life() is life]:
        track.rename(life)


ranges.on_forked = _in_child
sites.mark = mark
os.register_at_fork(after_in_child=_in_child)
