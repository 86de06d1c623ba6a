"""`Run.escalations()`: the judge's words on each request, stage and rank, joined with what was recorded, and when."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from itertools import islice
from pathlib import Path
from typing import Any, Iterable, Iterator, NamedTuple, Sequence

import polars as pl

from ...store import fate
from ...store.control_folder import ControlFolder
from ...store.documents import Unusable
from ...store.fate import Asked, Fates
from ...store.report import DRAINING, RUNNING, Report
from ...store.session_file import RecordedSession, read_sessions
from ...store.values import small_number, text_of, whole_number
from ..folder import noting_unusable
from ..frames import ESCALATION_SCHEMA
from ..processes import Process, find_living
from ..run_files import RunFiles

# Beyond these somebody else wrote it; the rest is left out, and listed.
ROWS_AT_MOST = 1_000_000
_LATEST_NS = (1 << 63) - 1

_Place = tuple["str | None", "int | None"]  # stage and rank
# Host and pid to instants on the host's wall clock, with what is to be added there.
_Anchors = dict[tuple[str, int], list[tuple[int, int]]]


class _Request(NamedTuple):
    """All that there is of one request: what was asked, the words on it by rank, its sessions by stage and rank."""

    id: str
    asked: Asked | None
    words: dict[int, Report]
    recorded: dict[_Place, list[RecordedSession]]


def table(files: RunFiles, now_ns: int | None = None) -> pl.DataFrame:
    """See `Run.escalations`. `now_ns`: wall clock; a rank that is silent by then has let a request expire."""
    control, asked = ControlFolder(Path(files.path), files.id, is_private=False), list[Asked]()
    is_alive = find_living((process.host, process.pid, process.state) for process in files.processes)
    with noting_unusable(files.damage) as unusable:
        kept = [session for session in read_sessions(files.path, files.id, unusable) if session.key[0]]
        heard = fate.read_heard(control, is_alive, unusable)
        judge = Fates(heard, lambda: kept, is_alive, time.time_ns() if now_ns is None else now_ns)
        try:
            asked = fate.read_asked(control)
        except Unusable as exc:
            unusable.append(exc)
        anchors = _list_anchors(files.processes if kept else ())
        requests = _list_requests(judge, asked, kept)
        places = ((request, place) for request in requests for place in _list_places(request, judge))
        rows = [_make_row(request, place, judge, anchors) for request, place in islice(places, ROWS_AT_MOST)]
        if next(places, None) is not None:
            unusable.append(Unusable(control.path, f"more than {ROWS_AT_MOST} rows: the rest is left out"))
    return pl.DataFrame(rows, schema=ESCALATION_SCHEMA)


def _list_anchors(processes: Iterable[Process]) -> _Anchors:
    anchors: _Anchors = {}
    for process in processes:
        own = ((of.realtime_ns, of.monotonic_ns + process.offset_ns - of.realtime_ns) for of in process.clock.anchors)
        anchors.setdefault((process.host, process.pid), []).extend(own)
    return {who: sorted(own) for who, own in anchors.items()}


def _list_requests(judge: Fates, wanted: Sequence[Asked], kept: Sequence[RecordedSession]) -> Iterator[_Request]:
    """The oldest first, by when it was asked for; by its first session, where no more is left; words alone are old."""
    recorded: dict[str, dict[_Place, list[RecordedSession]]] = {}
    for session in kept:
        id, stage, rank = session.key
        recorded.setdefault(id, {}).setdefault((stage, rank), []).append(session)
    by_id = {asked.request.id: asked for asked in wanted}
    since_ns: dict[str, int] = {}
    for id, places in recorded.items():
        begun = (whole_number(each.document.get("start_ns")) for of_place in places.values() for each in of_place)
        since_ns[id] = min(filter(None, begun), default=0)
    since_ns.update((id, asked.request.created_ns) for id, asked in by_id.items())
    for id in sorted({*since_ns, *judge.ids}, key=lambda id: (since_ns.get(id, 0), id)):
        request = by_id[id].request if id in by_id else None
        yield _Request(id, by_id.get(id), judge.words(id, request), recorded.get(id, {}))


def _list_places(request: _Request, judge: Fates) -> Iterator[_Place]:
    """A stage is unknown where neither the request nor a profile is there; so is a rank that no profile names."""
    wanted = request.asked.request.stages if request.asked is not None else ()
    asked = judge.ranks(request.asked) if request.asked is not None else ()
    more = sorted({*request.words, *(rank for _, rank in request.recorded if rank is not None)}.difference(asked))
    stages = sorted({*wanted, *(stage for stage, _ in request.recorded if stage is not None)})
    for stage in stages or (None,):
        is_wanted = request.asked is None or stage in wanted
        yield from ((stage, rank) for rank in (asked if is_wanted else ()))
        spoken = request.words if is_wanted else {}
        yield from ((stage, rank) for rank in more if rank in spoken or (stage, rank) in request.recorded)
        if (stage, None) in request.recorded:
            yield stage, None


def _make_row(request: _Request, place: _Place, judge: Fates, anchors: _Anchors) -> dict[str, Any]:
    stage, rank = place
    report = (request.words.get(rank) if rank is not None else None) or judge.silence(request.id, rank, request.asked)
    recorded = request.recorded.get(place, [])
    # As it was asked for; with options over it, as its sessions call that.
    asked = None if request.asked is None else request.asked.request
    preset = None if asked is None else asked.preset
    if asked is None or (asked.preset is not None and asked.options):
        names = (text_of(session.document.get("preset")) for session in recorded)
        preset = next(filter(None, names), preset)
    steps = sorted({step for session in recorded for step in session.steps} or set(report.recorded_steps))
    return {
        "request": request.id, "stage": stage, "rank": rank,
        "state": RUNNING if report.state == DRAINING else report.state,
        "first_step": steps[0] if steps else report.first_step, "last_step": steps[-1] if steps else report.last_step,
        "start_ns": min(_align_times(anchors, recorded, "start_ns"), default=None),
        "end_ns": max(_align_times(anchors, recorded, "end_ns"), default=None),
        "preset": preset,
        "folder": os.path.commonpath([session.place for session in recorded]) if recorded else None,
        "reason": text_of(report.reason),
    }  # fmt: skip


def _align_times(anchors: _Anchors, sessions: Sequence[RecordedSession], key: str) -> list[int]:
    """Times by the wall clock of a host, of those of these sessions that have one, on the run's aligned clock, by the
    anchors of the process that told them; as they are where nothing is known of it.
    """
    times = []
    for session in sessions:
        time_ns, get = whole_number(session.document.get(key)), session.document.get
        own = anchors.get((text_of(get("host")), small_number(get("pid")) or 0), [])
        at = bisect_left(own, (time_ns, 0))
        near = min(own[max(0, at - 1) : at + 1], key=lambda each: abs(each[0] - time_ns), default=(0, 0))
        times += [min(max(0, time_ns + near[1]), _LATEST_NS)] if time_ns else []
    return times
