"""The hot path in Python: the names and the behaviour of `mstxkit.engine.native.hot`, as docs/internals/engine.md says.

Differences that cannot be helped: a range costs about a hundred times what it costs C; the clock is CLOCK_MONOTONIC or
the fake one; the heartbeat needs the GIL; a context that was copied without an event loop (by `Context.run`, say) takes
a track of its own from its first range on; and a child forked from C, past `os.fork()`, notices it with its first
range.
"""

from __future__ import annotations

import operator
import os
from functools import partial
from typing import Any

from ...host import names
from ...store import livefile, records
from ..plain_paths import stored
from . import banks, interruptions, listeners, ranges, sites, stages, tracks
from .banks import anchor, clock_kind, now, set_clock, set_fake_ticks, start_heartbeat, stop_heartbeat, wait
from .banks import ring as wake
from .listeners import await_first, clear_direct, clear_sink, set_direct, set_sink, set_watch, watch
from .ranges import Driven, Range, Span, mark
from .sites import Site, add_cost, flush_coalesced, intern, limit, site_costs, throttle, watch_site
from .stages import stage_keys, stage_waits, stages_seen, take_summaries

NATIVE = False
_UNGIVEN: Any = object()


def mstx_range(
    name: Any = _UNGIVEN, /, *, stage: Any = None, domain: Any = None, stream: Any = None, **attributes: Any
) -> Any:
    """A range: `with`, `async with`, or as a decorator. It never raises, and never hides what the body raises.

    Called as `mstx_range(name, *, stage=None, domain="default", stream=None, **attributes)`.
    """
    return _make_range("name", name, stage, domain, stream, attributes)


def stage(key: Any = _UNGIVEN, /, *, domain: Any = None, stream: Any = None, **attributes: Any) -> Any:
    """A range that is the stage `key`: reports total it by step and rank, and escalation looks it up."""
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
    return Range(site.name, site.stage, site.domain, stream, attributes if type(attributes) is dict else None, site)


def driven(site: Site, body: Any, stream: Any = None, attributes: dict[str, Any] | None = None) -> Driven:
    """Run a coroutine or generator inside one range of a site."""
    return Driven(opened(site, stream, attributes), body, True)


def opened(site: Site, stream: Any = None, attributes: dict[str, Any] | None = None) -> Span:
    """One range of a site around several pieces of work."""
    return Span(timed(site, stream, attributes))


def step(n: Any = None) -> int | None:
    """The next step, or step n, for this process: all its threads."""
    wanted = None if n is None else _as_step(n)  # outside of the lock: it may log
    is_recording = listeners.on & listeners.RECORD
    with banks.lock:
        if n is None:
            wanted = 0 if tracks.step == records.NO_STEP else min(tracks.step + 1, records.STEP_MAX)
        if wanted is not None and wanted != tracks.step:  # patched calls tell theirs again and again
            tracks.step = wanted
            if is_recording:
                stages.step_is_over()
        if wanted is not None and tracks.first_said is None and is_recording:
            tracks.first_said = [wanted, now()]
        in_force = process_step()
    if wanted is not None:
        listeners.tell_step(wanted)
    return in_force


def _as_step(n: Any) -> int | None:
    """Step n; None, and a fault, where there is no such step."""
    if type(n) is int and 0 <= n <= records.STEP_MAX:
        return n  # what is the program's own comes up out of a call, and no call is needed here
    try:
        wanted = operator.index(n)
        if 0 <= wanted <= records.STEP_MAX:
            return int(wanted)
        raise ValueError(f"step must be an int from 0 to {records.STEP_MAX}")
    except Exception as exc:
        interruptions.note("step", exc)
        return None


class at_step:
    """Give the enclosing task or thread a step of its own, and the tasks created inside."""

    def __init__(self, n: Any) -> None:
        self._step, self._ambient = _as_step(n), tracks.ambient
        self._before: int | None = None

    def __enter__(self) -> int | None:
        self._ambient = tracks.ambient  # another one in a forked child, which is not inside of it
        self._before = self._ambient.get()[1]
        try:
            self._be_at(self._step)
            return current_step()
        except BaseException:
            self.__exit__()
            raise

    @interruptions.begins_with_try
    def __exit__(self, *error: object) -> None:
        try:
            self._be_at(self._before)
        finally:
            self._be_at(self._before)  # where the first time was interrupted

    def _be_at(self, step: int | None) -> None:
        if self._step is not None:
            self._ambient.set((self._ambient.get()[0], step))


def carried() -> int | None:
    """Stage and step that the caller is inside of, for `carry` on another thread; None outside of any."""
    return None if tracks.stage_here() is None and tracks.ambient.get()[1] is None else _pack_place(current_step())


def carry(carried: int | None) -> int | None:
    """Be inside of these from now on, in the calling context; returns what to give to `carry` to leave them."""
    if carried is None:
        return None
    before, stage_id = _pack_place(tracks.ambient.get()[1]), carried & 0xFFFF
    within = tracks.Within(list(stages.interned.values())[stage_id - 1]) if stage_id else None
    tracks.ambient.set((within, carried >> 16 & records.NO_STEP if carried >> 48 else None))
    track = tracks.own_track()
    if track is not None and track.open:
        track.open[-1].inner = (within,)
    elif track is not None:
        track.around = within
    return before


def _pack_place(step: int | None) -> int:
    stage = tracks.stage_here()
    return (0 if stage is None else stage.id) | (0 if step is None else step << 16 | 1 << 48)


def process_step() -> int | None:
    """The step in force, whatever `at_step` says."""
    return None if tracks.step == records.NO_STEP else tracks.step


def first_step() -> list[int] | None:
    """The first step that was said since recording began, and when, in ticks; None: none was."""
    return tracks.first_said


def current_step() -> int | None:
    """The step in force, that of `at_step` before that of `step`; None until one is set."""
    at = tracks.ambient.get()[1]
    return process_step() if at is None else at


def current_stage() -> str | None:
    """The key of the innermost stage that this task or thread is inside of, or None."""
    return getattr(tracks.stage_here(), "key", None)


def stage_times(step: Any = None) -> dict[str, float]:
    """Stage to seconds in this process, of a step or of the last finished one.

    None: of the latest step before the one in force that has any, else of the latest that has any.
    """
    times = {stage.key: dict(stage.times) for stage in tuple(stages.interned.values())}
    steps, in_force = {step for by_step in times.values() for step in by_step} - {records.NO_STEP}, current_step()
    finished = [step for step in steps if in_force is not None and step < in_force]
    wanted = max(finished or steps, default=records.NO_STEP) if step is None else _as_step(step)
    return {key: by_step[wanted] * 1e-9 for key, by_step in times.items() if wanted in by_step}


def set_recording(on: object) -> None:
    """Record from now on, where a live file is attached; or stop."""
    tracks.first_said = None if on else tracks.first_said
    listeners.switch(listeners.RECORD, bool(on) and banks.live is not None)


def attach(view: Any, nonce: int) -> None:
    """Write into this live file from now on."""
    detach()
    stages.forget_sums()
    banks.live = banks.Live(view, nonce)


def detach() -> None:
    """Let go of the live file; ranges that are open write nothing more."""
    if banks.live is not None and banks.live.pid != os.getpid():
        ranges.leave_parent()
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
    full = [index for index in range(live.layout.bank_count) if live.words[live.state_at(index)] == livefile.FULL]
    return min(full, key=lambda index: live.words[live.layout.bank_at(index) // 8], default=-1)


def encode_bank(index: int) -> Any:
    """The uncompressed payload parts of a sealed block, as `segment.encode_bank`."""
    return encode_left(*_copy_bank(index))


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
    content = payload.planes + payload.attributes
    if at < 0 or at + len(content) > len(room):
        raise ValueError("no room for all of the bank's records")
    room[at : at + len(content)] = content
    return payload.n, payload.m, payload.extent


def bank_texts(index: int) -> bytes:
    """The texts of a full bank, as `encode_bank` gives them."""
    return livefile.without_checksums(_copy_bank(index)[1])


def _copy_bank(index: int) -> tuple[bytes, bytes, int]:
    """Records, texts and salt of a bank; nothing of one that is free."""
    live = _with_bank(index)
    bank = livefile.read_bank(live.view, live.layout, index)
    return (b"", b"", 0) if bank is None else (bank.raw, bank.text, bank.salt)


def release_bank(index: int) -> None:
    """The bank is free again; where there was none to rotate into, records may go on."""
    live = _with_bank(index)
    at = live.state_at(index)
    if live.words[at] == livefile.FULL:  # in the middle of a rotation `live.bank` is still the full one
        live.words[at] = livefile.FREE


def _with_bank(index: int) -> banks.Live:
    live: banks.Live | None = banks.live
    if live is None or not 0 <= index < live.layout.bank_count:
        raise ValueError("no such bank" if live is not None else "no such bank: no live file is attached")
    return live


def wait_for_records(seconds: float) -> bool:
    """As `wait`, but not for long: nobody but who calls this could see what is recorded meanwhile."""
    return wait(min(seconds, 2.5))


def ticks_per_ns() -> float:
    """Ticks of the clock in use per nanosecond: both clocks count nanoseconds."""
    return 1.0


def set_hooks(describe: Any, utf8: Any, fault: Any, decorate: Any, unpickle: Any = None) -> None:
    """What the engine needs of the rest of mstxkit; `unpickle` None leaves that one as it is."""
    sites.unpickle = unpickle or sites.unpickle
    sites.describe, banks.utf8 = describe, utf8
    interruptions.on_fault, ranges.on_decorate = fault, decorate
    sites.intern(records.CATCH_ALL)  # the site of names beyond the limit: the first of all


def counters() -> dict[str, int]:
    """What was lost, and what there is."""
    live = banks.live
    counted = livefile.read_counters(banks.detached if live is None else live.view)
    del counted["evicted"], counted["own_cost_ns"]  # others count these
    is_open = 0 if live is None else len(live.open)
    return {**counted, "summaries_lost": stages.state.lost, "sites": len(sites.interned), "open": is_open}


count_fault = partial(banks.count, "faults")
sites.mark = mark
os.register_at_fork(after_in_child=ranges.leave_parent)
