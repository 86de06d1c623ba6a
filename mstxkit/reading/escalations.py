"""What was asked for in a run and what became of it, from its requests, its ranks' own words, and their profiles.

    control/requests.json                   what was asked
    control/acks/rank<R>[-<role>].json      what each rank says of it
    profiles/                               what was recorded: `profiles.py`

Read on trust of nothing in them, and without the code that writes them: what cannot be read is listed as damage.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_left
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ..stages import canonical
from . import profiles
from .folder import Damage, Folder
from .processes import EXITED, KILLED, Process, small_number, text_of, whole_number
from .profiles import Session

CONTROL, ACKS, REQUESTS = "control", "acks", "requests.json"
# Beyond these somebody else wrote it; the rest is left out, and listed.
ROWS_AT_MOST = 1_000_000
_RANKS_AT_MOST = 1 << 20
_LATEST_NS = (1 << 63) - 1
_ACK = re.compile(r"rank(0|[1-9]\d{0,8})(?:-\w+)?\.json", re.ASCII)
# From the best to the farthest from an end: of several processes of one rank, the one that is last here counts.
_ENDS = ("done", "refused", "expired", "cancelled", "failed")
_STATES = (*_ENDS, "queued", "armed", "running")
_SHOWN_AS = {"draining": "running"}


class _Word(NamedTuple):
    """What counts of all that is said of one request on one rank."""

    state: str
    reason: str = ""
    first_step: int | None = None
    last_step: int | None = None
    steps: tuple[int, ...] = ()


class _Wanted(NamedTuple):
    """A request, as far as it can be understood."""

    stages: tuple[str, ...]
    ranks: Sequence[int]
    preset: str | None
    created_ns: int
    expires_ns: int
    cancelled: str | None


class _Said(NamedTuple):
    """What one process says of itself."""

    rank: int
    stages: frozenset[str]
    world_size: int
    reports: Sequence[Mapping[str, Any]]
    has_ended: bool


def rows(
    run: str, run_id: str, processes: Sequence[Process], damage: list[Damage], now_ns: int | None = None
) -> list[dict[str, Any]]:
    """One for each request, stage and rank, with the columns of `Run.escalations()`, in the order of the requests.

    Args:
        run: The run folder.
        run_id: Its id; "" where that is unknown: then no file is of another run.
        processes: The run's, for their clocks and for who is gone.
        damage: What cannot be read is added here, once.
        now_ns: Wall clock: a rank that is silent by then has let a request expire. Default: this host's.
    """
    new: list[Damage] = []
    found = list(_rows(run, run_id, processes, new, time.time_ns() if now_ns is None else now_ns))
    known = set(damage)
    damage += [one for one in dict.fromkeys(new) if one not in known]
    return found


def _rows(
    run: str, run_id: str, processes: Sequence[Process], damage: list[Damage], now_ns: int
) -> Iterator[dict[str, Any]]:
    said = list(_said(run, run_id, processes, damage))
    wanted = _wanted(run, run_id, said, damage)
    recorded: dict[Any, list[Session]] = {}
    for one in profiles.sessions(run, run_id, damage):
        if one.key[0]:
            recorded.setdefault(one.key, []).append(one)
    words, clocks = _words(wanted, said, now_ns), _Clocks(processes)
    for count, key in enumerate(_keys(wanted, words, recorded)):
        if count == ROWS_AT_MOST:
            profiles.add(damage, os.path.join(run, CONTROL), f"more than {count} rows: the rest is left out")
            return
        yield _row(key, wanted.get(key[0]), words, recorded.get(key, []), clocks, now_ns)


# Files.


def _said(run: str, run_id: str, processes: Sequence[Process], damage: list[Damage]) -> Iterator[_Said]:
    by_pid: dict[tuple[str, int], list[Process]] = {}
    for process in processes:
        by_pid.setdefault((process.host, process.pid), []).append(process)
    folder = Folder(os.path.join(run, CONTROL, ACKS))
    for name in folder.names(".json"):
        told = profiles.document(folder, name, run_id, damage) if _ACK.fullmatch(name) else None
        rank = None if told is None else small_number(told.get("rank"))
        if told is not None and rank is not None:
            own = by_pid.get((text_of(told.get("host")), small_number(told.get("pid")) or 0), [])
            has_ended = bool(own) and all(process.state in (EXITED, KILLED) for process in own)
            yield _what_it_says(_table(told.get("document")), rank, has_ended)


def _what_it_says(document: Mapping[str, Any], rank: int, has_ended: bool) -> _Said:
    seen = frozenset(canonical(text_of(stage)) for stage in _list(document.get("stages")))
    reports = [one for one in _list(document.get("reports")) if isinstance(one, dict)]
    return _Said(rank, seen, small_number(document.get("world_size")) or 0, reports, has_ended)


def _wanted(run: str, run_id: str, said: Sequence[_Said], damage: list[Damage]) -> dict[str, _Wanted]:
    folder = Folder(os.path.join(run, CONTROL))
    told = profiles.document(folder, REQUESTS, run_id, damage) or {}
    sent = [one for one in _list(told.get("messages")) if isinstance(one, dict)]
    cancelled = {text_of(one.get("request")): text_of(one.get("reason")) for one in sent if one.get("kind") == "cancel"}
    size = max(
        [0, *(one.world_size for one in said if one.world_size <= _RANKS_AT_MOST), *(one.rank + 1 for one in said)]
    )
    asked = [(text_of(one.get("id")), one) for one in sent if one.get("kind") == "request"]
    return {id: _request(one, size, cancelled.get(id)) for id, one in asked if id}


def _request(message: Mapping[str, Any], world_size: int, cancelled: str | None) -> _Wanted:
    told = _table(message.get("request"))
    ranks = told.get("ranks")
    named = _list(message.get("suspects") if ranks == "suspect+peer" else ranks)
    return _Wanted(
        tuple(sorted({canonical(text_of(stage)) for stage in _list(told.get("stages"))} - {""})),
        range(world_size) if ranks == "all" else sorted({rank for rank in named if small_number(rank) is not None}),
        text_of(told.get("preset")) or None, whole_number(told.get("created_ns")),
        whole_number(told.get("expires_ns")), cancelled,
    )  # fmt: skip


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


# Words.


def _words(wanted: Mapping[str, _Wanted], said: Sequence[_Said], now_ns: int) -> dict[tuple[str, int], _Word]:
    """Request and rank to what counts: a process's own word; of a lost one, that of the rank which speaks for it."""
    own: dict[tuple[str, int], list[tuple[bool, _Word]]] = {}
    of_others: dict[tuple[str, int], _Word] = {}
    for one in said:
        for report in one.reports:
            id, rank, word = text_of(report.get("id")), small_number(report.get("rank")), _word(report)
            if word is None or rank is None or not id:
                continue
            if rank != one.rank:
                of_others[id, rank] = word
                continue
            request = wanted.get(id)
            runs_it = request is None or not one.stages.isdisjoint(request.stages)
            outlived = one.has_ended and _outlived(word, request, now_ns)
            own.setdefault((id, rank), []).append((runs_it, outlived or word))
    spoken = {key: _last(words) for key, words in own.items()}
    lost = {key: word for key, word in of_others.items() if key not in spoken or spoken[key].state not in _ENDS}
    return {**spoken, **lost}


def _word(report: Mapping[str, Any]) -> _Word | None:
    state = _SHOWN_AS.get(text_of(report.get("state")), text_of(report.get("state")))
    steps = [step for step in _list(report.get("recorded_steps")) if small_number(step) is not None]
    if state not in _STATES:
        return None
    first_step, last_step = (small_number(report.get(key)) for key in ("first_step", "last_step"))
    return _Word(state, text_of(report.get("reason")), first_step, last_step, tuple(steps))


def _outlived(word: _Word, request: _Wanted | None, now_ns: int) -> _Word | None:
    """What becomes of a request on a process that is gone; None where its word still holds."""
    if word.state == "running":
        return word._replace(state="failed", reason="its process ended in the middle of a session")
    if word.state not in _ENDS and request is not None and now_ns >= request.expires_ns:
        return word._replace(state="expired", reason="its process had ended")
    return None


def _last(words: list[tuple[bool, _Word]]) -> _Word:
    """Of several processes with one rank: those that run the stage, and of these the farthest from a good end."""
    relevant = [word for runs_it, word in words if runs_it] or [word for _, word in words]
    return max(relevant, key=lambda word: _STATES.index(word.state))


def _silent(wanted: _Wanted | None, sessions: Sequence[Session], now_ns: int) -> _Word:
    """What it means that a rank says nothing of a request."""
    states = {text_of(one.told.get("state")) for one in sessions}
    if states:
        state = "running" if "recording" in states else "failed" if "failed" in states else "done"
        return _Word(state, "as its session.json says; the rank itself says nothing of it")
    if wanted is not None and wanted.cancelled is not None:
        return _Word("cancelled", wanted.cancelled)
    if wanted is not None and now_ns >= wanted.expires_ns:
        return _Word("expired", "it never answered")
    return _Word("queued", "no answer yet")


# Rows.


def _keys(
    wanted: Mapping[str, _Wanted], words: Mapping[tuple[str, int], _Word], recorded: Mapping[Any, Sequence[Session]]
) -> Iterator[tuple[str, str | None, int | None]]:
    """Request, stage and rank of each row; a stage is unknown where neither the request nor a profile is there."""
    ranks_of: dict[str, set[int]] = {}
    for id, rank in words:
        ranks_of.setdefault(id, set()).add(rank)
    kept_of: dict[str, set[tuple[str, int | None]]] = {}
    for id, stage, rank in recorded:
        kept_of.setdefault(id, set()).add((stage, rank))
    known = sorted(wanted, key=lambda id: (wanted[id].created_ns, id))
    for id in [*known, *sorted({*ranks_of, *kept_of} - {*known})]:
        yield from (
            (id, stage, rank)
            for stage, rank in _places(wanted.get(id), ranks_of.get(id, set()), kept_of.get(id, set()))
        )


def _places(
    wanted: _Wanted | None, ranks: set[int], kept: set[tuple[str, int | None]]
) -> Iterator[tuple[str | None, int | None]]:
    stages: set[str] = {stage for stage, _ in kept} | set(wanted.stages if wanted is not None else ())
    asked: Sequence[int] = wanted.ranks if wanted is not None else ()
    known = asked if isinstance(asked, range) else set(asked)
    more = sorted(rank for rank in {*ranks, *(rank for _, rank in kept if rank is not None)} if rank not in known)
    for stage in _or_unknown(sorted(stages)):
        is_wanted = wanted is None or stage is None or stage in wanted.stages
        yield from ((stage, rank) for rank in (asked if is_wanted else ()))
        yield from ((stage, rank) for rank in more if (is_wanted and rank in ranks) or (stage, rank) in kept)
        if (stage, None) in kept:
            yield stage, None


def _or_unknown(stages: list[str]) -> Sequence[str | None]:
    return stages or [None]


def _row(
    key: tuple[str, str | None, int | None], wanted: _Wanted | None, words: Mapping[tuple[str, int], _Word],
    sessions: Sequence[Session], clocks: _Clocks, now_ns: int,
) -> dict[str, Any]:  # fmt: skip
    id, stage, rank = key
    word = (None if rank is None else words.get((id, rank))) or _silent(wanted, sessions, now_ns)
    steps = sorted({step for one in sessions for step in one.steps} or set(word.steps))
    presets = [text_of(one.told.get("preset")) for one in sessions]
    return {
        "request": id,
        "stage": stage,
        "rank": rank,
        "state": word.state,
        "first_step": steps[0] if steps else word.first_step,
        "last_step": steps[-1] if steps else word.last_step,
        "start_ns": min(clocks.times(sessions, "start_ns"), default=None),
        "end_ns": max(clocks.times(sessions, "end_ns"), default=None),
        "preset": wanted.preset if wanted is not None else next(filter(None, presets), None),
        "folder": os.path.commonpath([one.folder for one in sessions]) if sessions else None,
        "reason": word.reason,
    }


class _Clocks:
    """Times by the wall clock of a host, on the run's aligned one, by the anchors of the process that told them."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = processes
        self._anchors: dict[tuple[str, int], list[tuple[int, int]]] | None = None

    def times(self, sessions: Sequence[Session], key: str) -> list[int]:
        """Those of these sessions that have one, aligned; as told where nothing is known of their process."""
        return [self._aligned(one, told) for one in sessions for told in [whole_number(one.told.get(key))] if told]

    def _aligned(self, session: Session, told_ns: int) -> int:
        if self._anchors is None:
            self._anchors = self._all_anchors()
        who = (text_of(session.told.get("host")), small_number(session.told.get("pid")) or 0)
        anchors = self._anchors.get(who, [])
        at = bisect_left(anchors, (told_ns, 0))
        near = min(anchors[max(0, at - 1) : at + 1], key=lambda one: abs(one[0] - told_ns), default=(0, 0))
        return min(max(0, told_ns + near[1]), _LATEST_NS)

    def _all_anchors(self) -> dict[tuple[str, int], list[tuple[int, int]]]:
        """Host and pid to instants on the host's wall clock, with what is to be added there."""
        found: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for process in self._processes:
            found.setdefault((process.host, process.pid), []).extend(
                (one.realtime_ns, one.monotonic_ns + process.offset_ns - one.realtime_ns)
                for one in process.clock.anchors
            )
        return {who: sorted(anchors) for who, anchors in found.items()}
