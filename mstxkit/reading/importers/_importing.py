"""Files of other tools into a run: read, compared with the run's own ranges, joined with its stages, and kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence

from ...errors import CaptureError, FormatError
from ..folder import Damage, reason_of
from ..run_files import RunFiles
from . import _bounds, _join, _kept
from ._places import FileToImport
from ._trace import DeviceTrace


class Imported(NamedTuple):
    """What became of one file, as it was named; with the ranks whose devices it tells of.

    Attributes:
        rows: Of `Run.device()`; none where it has nothing to do with this run, and `problem` says why.
        clocks: How the clock of each rank was found.
        notes: What a reader should know.
    """

    file: str
    source: str
    ranks: list[int]
    events: int
    rows: list[dict[str, Any]]
    clocks: list[dict[str, Any]]
    problem: str
    notes: list[str]
    damage: list[Damage]

    def about(self) -> dict[str, Any]:
        """For the document beside the rows."""
        kept = self._asdict()
        del kept["rows"], kept["file"]
        return {**kept, "damage": [part._asdict() for part in self.damage]}


def import_all(
    files: RunFiles, sources: Sequence[FileToImport], advance: Callable[[float], None], rank: int | None = None
) -> list[Imported]:
    """Read these files and join them with a run, opened without filters but for ranks. `advance`: called with about the
    bytes that were read since; `rank`: whose they are, where nothing else says so.
    """
    traces: dict[int, list[DeviceTrace]] = {}
    problems: dict[int, FormatError | OSError] = {}
    for number, source in enumerate(sources):
        try:
            traces[number] = _read_traces(source, advance)
        except (OSError, FormatError) as exc:
            problems[number] = exc
    every = [trace for of_file in traces.values() for trace in of_file]
    _join.know_by_process(files, every)
    for trace in every:
        trace.rank = rank if trace.rank is None else trace.rank
    _bounds.compare_traces(every)
    hosts = _join.find_hosts(files, every)
    made = []
    for number, source in enumerate(sources):
        if number in problems:
            damage = Damage.because(os.fspath(source.path), problems[number])
            made.append(Imported(damage.path, source.importer.what, [], 0, [], [], damage.reason, [], [damage]))
        else:
            made.append(_join_traces(source, traces[number], hosts))
    return list(_each_once(made))


def _each_once(files: Iterable[Imported]) -> Iterator[Imported]:
    """Without rows of copies: all that one tells would stand there twice."""
    first: dict[str, str] = {}
    for made in files:
        told_by = first.setdefault(repr((made.source, made.rows)), made.file)
        is_copy = bool(made.rows) and told_by != made.file
        yield made._replace(rows=[], problem=f"tells the same as {told_by}: left out") if is_copy else made


def try_to_keep(run: Path, run_id: str, source: FileToImport, imported: Imported) -> str:
    """Keep what a file became, in place of what was kept of it before; why it could not be done, or "".

    Nothing is kept of one that has no rows and never had: it may have some once its stage is over. Of one that can
    never have any, a light profile's, that is kept.
    """
    try:
        identity = _kept.Identity.of(source, run)
        rows = [{**row, "file": identity.file} for row in imported.rows]
        if rows or imported.problem == _join.NOTHING_IN_IT or _kept.is_there(run, identity):
            _kept.keep_rows(run, run_id, identity, rows, imported.about())
        return ""
    except (OSError, CaptureError) as exc:
        return reason_of(exc)


def _read_traces(source: FileToImport, advance: Callable[[float], None]) -> list[DeviceTrace]:
    traces = source.importer.read(source.path, advance)
    for trace in traces:
        if len(traces) == 1:
            ranks = (source.rank, trace.rank, source.in_name)
            trace.rank = next((rank for rank in ranks if rank is not None), None)
        trace.host = source.host or trace.host
        trace.pid = source.pid or trace.pid
    if source.companion is not None and len(traces) == 1 and traces[0].transfer is None:
        _complete_trace(traces[0], source.companion, advance)
    for trace in traces:
        trace.leave_out_far()
        for why, count in trace.lost.items():
            Damage.of(trace.file, f"{count} {why}").note_in(trace.damage) if count else None
    return traces


def _complete_trace(trace: DeviceTrace, companion: Path, advance: Callable[[float], None]) -> None:
    """What `communication.json` beside it says of transfer and waiting."""
    from .communication import IMPORTER

    try:
        (other,) = IMPORTER.read(companion, advance)
    except (OSError, FormatError) as exc:
        Damage.because(str(companion), exc).note_in(trace.damage)
        return
    trace.bounds = other.bounds
    trace.damage += other.damage
    trace.lost.update(other.lost)
    trace.notes.append("transfer and waiting are as communication.json beside it tells or bounds them")


def _join_traces(
    source: FileToImport, traces: list[DeviceTrace], hosts: dict[int, list[_join.HostProcess]]
) -> Imported:
    rows: list[dict[str, Any]] = []
    clocks: list[dict[str, Any]] = []
    problems, notes = [], [note for trace in traces for note in trace.notes]
    for trace in traces:
        if trace.rank is None:
            problems.append("does not say of which rank it is: name it with --rank")
            continue
        joined = _join.join_trace(trace, hosts.get(trace.rank, []))
        rows += joined.rows
        clocks.append({"rank": trace.rank, **joined.clock._asdict()})
        notes += filter(None, [joined.clock.note, joined.doubt] if joined.rows else [])
        problems += filter(None, [joined.problem])
    ranks = sorted({trace.rank for trace in traces if trace.rank is not None})
    damage = list(dict.fromkeys(part for trace in traces for part in trace.damage))
    events = sum(trace.events for trace in traces)
    problem = "" if rows else "; ".join(dict.fromkeys(problems))
    notes += [] if not rows else dict.fromkeys(problems)
    return Imported(
        os.fspath(source.path), source.importer.what, ranks, events, rows, clocks, problem,
        list(dict.fromkeys(notes)), damage,
    )  # fmt: skip
