"""Device time of a recording, stage by stage: which process of the run it belongs to, and what each stage holds of it.

Computing wins over communicating, as in msprof: what is both counts as computing, and as overlapped besides. What is
neither is free. Stages are brought to the recording's clock, so that the three add up to the stage exactly.
"""

from __future__ import annotations

import re
from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np
import polars as pl

from ...host.names import safe_domain, safe_message
from ..intervals import Intervals, union
from ..processes import Process, rank_of, role_of
from ..run_files import RunFiles
from ..tables import stages, waits
from . import _bounds, _clock_fit
from ._clock_fit import ClockFit
from ._trace import NAME_CHARACTERS, NO_NAMES, BoundedCollectives, DeviceTrace, NamedColumn, NamedStretches, Times

DEVICE_SCHEMA: dict[str, Any] = {
    "rank": pl.Int32, "step": pl.Int64, "stage": pl.String, "role": pl.String, "host": pl.String, "count": pl.Int64,
    **dict.fromkeys(
        ("stage_ns", "computing_ns", "communicating_ns", "transfer_ns", "waiting_ns", "overlapped_ns", "free_ns",
         "spans_ns", "error_ns"), pl.Int64),
    "clock": pl.String, "source": pl.String, "file": pl.String, "known": pl.String,
    **dict.fromkeys(("transfer_from_ns", "transfer_to_ns", "waiting_from_ns", "waiting_to_ns"), pl.Int64),
}  # fmt: skip
_CALLED = {"domain": pl.String, "name": pl.String, "other": pl.String}
_RANGES_OF_RUN = 1 << 21
# As of a light profile, which has ranges of the host alone.
NOTHING_IN_IT = "holds no time of a device"
# Clocks that are farther apart are not the wall clocks of two hosts.
_FAR_NS = 60_000_000_000


class HostProcess(NamedTuple):
    """A process of the run, with the stages that it went through and, where they are asked for, its ranges."""

    process: Process
    stages: pl.DataFrame
    ranges: NamedStretches


class JoinedTrace(NamedTuple):
    """What a trace became: rows of `DEVICE_SCHEMA` without the last one, or the `problem` why there are none, and how
    its clock was found. `doubt`: what speaks against its being of this run, though there are.
    """

    rows: list[dict[str, Any]]
    clock: ClockFit
    problem: str = ""
    doubt: str = ""


def hosts(files: RunFiles, traces: Sequence[DeviceTrace]) -> dict[int, list[HostProcess]]:
    """The processes of each rank of these traces. Ranges are read only where a trace has some of such names."""
    wanted = {trace.rank for trace in traces}
    names = {name for trace in traces for name in trace.ranges.names}
    ranks = {process.index: rank for process in files.processes if (rank := rank_of(process)) is not None}
    ranks = ranks or {process.index: 0 for process in files.processes}  # profiles of one that never learns its rank
    processes = [process for process in files.processes if ranks.get(process.index, -1) in wanted]
    rows = stages.outermost(waits.only_work(files.stage_rows))
    ranges = _ranges_of(files, {process.index for process in processes}, names) if names else {}
    by_rank: dict[int, list[HostProcess]] = {}
    for process in processes:
        own = HostProcess(process, rows.filter(pl.col("process") == process.index), ranges.get(process.index, NO_NAMES))
        by_rank.setdefault(ranks[process.index], []).append(own)
    return by_rank


def know_by_process(files: RunFiles, traces: Sequence[DeviceTrace]) -> None:
    """Set the rank of traces that say none, but who recorded them: where the run has one such process, it is that."""
    for trace in (trace for trace in traces if trace.rank is None and trace.pid is not None):
        ranks = {
            rank_of(process) for process in files.processes
            if process.pid == trace.pid and trace.host in ("", process.host)
        }  # fmt: skip
        if len(ranks) == 1:
            trace.rank = ranks.pop()


def _ranges_of(files: RunFiles, processes: set[int], names: set[str]) -> dict[int, NamedStretches]:
    """Ranges of these processes that recordings have too, called as they are there."""
    columns: dict[int, NamedColumn] = {}
    called: dict[tuple[str, str], str | None] = {}
    left = _RANGES_OF_RUN
    for ranges, _ in files.batches():
        own = pl.col("process").is_in(sorted(processes)) & pl.col("duration_ns").is_not_null()
        texts = (pl.col("domain").cast(pl.String), pl.col("name").cast(pl.String))
        same = ranges.filter(own).select(*texts, "process", "start_ns", "duration_ns")
        for domain, name in same.select("domain", "name").unique().iter_rows():
            message = safe_message(name or "")
            forms = (message, f"{safe_domain(domain or '')}::{message}", f"{domain}::{message}", name or "")
            called[domain, name] = next((form for form in (f[:NAME_CHARACTERS] for f in forms) if form in names), None)
        there = [(*pair, other) for pair, other in called.items() if other is not None]
        texts_there = pl.DataFrame(there, schema=_CALLED, orient="row")
        for row in same.join(texts_there, on=["domain", "name"]).head(left).iter_rows():
            _, _, process, start, length, other = row
            columns.setdefault(process, NamedColumn()).add(other, start, start + length)
            left -= 1
        if left <= 0:
            break
    return {process: column.all() for process, column in columns.items()}


def join(trace: DeviceTrace, candidates: Sequence[HostProcess]) -> JoinedTrace:
    """Rows of a trace by the process that it belongs to, of those of its rank."""
    extent = trace.extent
    if extent is None:
        return JoinedTrace([], _clock_fit.wall(0), NOTHING_IN_IT)
    fits = [(host, _fit_of(trace, host)) for host in candidates if host.stages.height]
    if not fits:
        return JoinedTrace([], _clock_fit.wall(0), f"is of rank {trace.rank}, of which the run has no stage")
    host, clock = max(fits, key=lambda both: _measure_closeness(trace, extent, *both))
    stranger = _name_stranger(trace, candidates)
    if refused := _why_not(trace, extent, host, clock, stranger):
        return JoinedTrace([], clock, f"{refused}: is it of this run?")
    rows = _make_rows(trace, extent, host, clock)
    if rows:
        return JoinedTrace(rows, clock, "", stranger)
    starts, ends = _stages_there(host, clock)
    apart_s, rank = max(int(starts.min()) - extent[1], extent[0] - int(ends.max())) / 1e9, rank_of(host.process)
    if apart_s <= 0:
        return JoinedTrace([], clock, f"was recorded while rank {rank} was in no stage", stranger)
    by = "by the wall clock" if clock.how == _clock_fit.WALL else "by its ranges"
    why = f"lies {apart_s:.1f} s outside of all stages of rank {rank}, {by}: is it of this run?"
    return JoinedTrace([], clock, why, stranger)


def _fit_of(trace: DeviceTrace, host: HostProcess) -> ClockFit:
    own_error_ns = host.process.clock.error_ns or 0
    fit = _clock_fit.fit(trace.ranges, host.ranges, own_error_ns)
    if fit is not None:
        return fit
    why = "it has no ranges of the host" if not len(trace.ranges.starts) else "none of its ranges is the run's"
    return _clock_fit.wall(own_error_ns, f"{why}: both clocks are taken to be the wall clock")


def _measure_closeness(
    trace: DeviceTrace, extent: tuple[int, int], host: HostProcess, clock: ClockFit
) -> tuple[bool, int, int, int, int, int]:
    """The more, the sooner is this process the one: ranges that agree, its pid and host, a near clock, stages then."""
    is_it = (trace.pid == host.process.pid) + 2 * _is_of_host(trace, host)
    starts, ends = _stages_there(host, clock)
    shared = int(np.clip(np.minimum(ends, extent[1]) - np.maximum(starts, extent[0]), 0, None).sum())
    return clock.matches > 0, int(is_it), clock.matches, -abs(clock.offset_ns), shared, -host.process.index


def _name_stranger(trace: DeviceTrace, candidates: Sequence[HostProcess]) -> str:
    """Who recorded it, where none of these processes did; "" where one did, or nobody knows."""
    if any(
        trace.pid in (None, host.process.pid) and (not trace.host or _is_of_host(trace, host)) for host in candidates
    ):
        return ""
    by = "" if trace.pid is None else f" by process {trace.pid}"
    on = trace.host and f" on {trace.host}"
    return f"was recorded{by}{on}, and rank {trace.rank} of the run has no such process"


def _is_of_host(trace: DeviceTrace, host: HostProcess) -> bool:
    """By their names, domains apart, as in the names of files."""
    names = (re.sub("[^0-9A-Za-z_]", "_", name.partition(".")[0])[:64] for name in (trace.host, host.process.host))
    return len({*names}) == 1


def _why_not(trace: DeviceTrace, extent: tuple[int, int], host: HostProcess, clock: ClockFit, stranger: str) -> str:
    """Why it is not joined though its time may fit: it is another job's, or its place is not known."""
    if clock.how == _clock_fit.WALL:
        is_here, names, ours = _is_of_host(trace, host), {*trace.ranges.names}, host.ranges
        same = np.isin(ours.codes, [code for code, name in enumerate(ours.names) if name in names])
        are_then = (same & (ours.starts < extent[1]) & (ours.ends > extent[0])).any()
        if are_then and not (is_here and trace.pid == host.process.pid):
            return "has ranges called as the run's, and at that time none of them agrees"
        return "" if is_here or not trace.host or trace.spans is not None else stranger  # spans may be anybody's
    is_sure = clock.how == _clock_fit.RANGES and not clock.rival_ns
    if stranger and abs(clock.offset_ns) > (_FAR_NS if is_sure else _clock_fit.WALL_ERROR_NS):
        return stranger
    if clock.rival_ns and abs(clock.offset_ns) > _FAR_NS:
        return "fits the run at several places, and none of them is near by the wall clock"
    return ""


def _stages_there(host: HostProcess, clock: ClockFit) -> tuple[Times, Times]:
    """Begins and ends of all occurrences, on the recording's clock."""
    starts = host.stages["start_ns"].to_numpy()
    return clock.to_theirs(starts), clock.to_theirs(starts + host.stages["duration_ns"].to_numpy())


def _tell_kinds(trace: DeviceTrace) -> tuple[Intervals | None, ...]:
    """What a recording tells, each without what wins over it: computing, communicating, transfer, waiting, overlapped,
    spans; None where it does not tell.
    """
    computing, whole, both = trace.computing, trace.communicating, None
    if whole is not None and computing is not None:
        whole, both = whole.without(computing), whole.cut(computing)
    transfer, waiting = trace.transfer, trace.waiting
    if whole is not None and transfer is not None and waiting is not None:
        transfer = transfer.cut(whole)
        waiting = waiting.cut(whole).without(transfer)
    return computing, whole, transfer, waiting, both, trace.spans


def _make_rows(trace: DeviceTrace, extent: tuple[int, int], host: HostProcess, clock: ClockFit) -> list[dict[str, Any]]:
    starts, ends = _stages_there(host, clock)
    starts, ends = np.maximum(starts, extent[0]), np.minimum(ends, extent[1])
    inside = np.flatnonzero(ends > starts)
    if not len(inside):
        return []
    there = host.stages[inside].select("step", pl.col("stage").cast(pl.String))
    keyed = there.with_columns(start=pl.Series(starts[inside]), end=pl.Series(ends[inside]))
    grouped = keyed.group_by("step", "stage", maintain_order=True).agg("start", "end").sort("step", "stage")
    stretches = [union(*both) for both in grouped.select("start", "end").iter_rows()]
    figures = _sum_figures(_tell_kinds(trace), trace.bounds, stretches)
    who = {"rank": trace.rank, "role": role_of(host.process), "host": host.process.host}
    return [
        {**who, "step": step, "stage": stage, "count": len(begins), **lengths, "clock": clock.how,
         "error_ns": min(2 * len(begins) * clock.error_ns, lengths["stage_ns"] or 0), "source": trace.source}
        for (step, stage, begins, _), lengths in zip(grouped.iter_rows(), figures)
    ]  # fmt: skip


def _sum_figures(
    kinds: tuple[Intervals | None, ...], bounds: BoundedCollectives | None, stages: list[Intervals]
) -> Iterator[dict[str, int | str | None]]:
    """Lengths of what each stage of a step holds; of all at once, as each kind may have millions of stretches."""
    sizes = [len(stage.starts) for stage in stages]
    first = np.cumsum([0, *sizes[:-1]])
    starts, ends = (np.concatenate([stage[at] for stage in stages]) for at in (0, 1))
    nothing: list[Any] = [None] * len(stages)

    def inside(kind: Intervals | None) -> list[Any]:
        return nothing if kind is None else _sum_lengths(kind.inside(starts, ends))

    def _sum_lengths(lengths: Times) -> list[Any]:
        return np.add.reduceat(lengths, first).tolist()  # type: ignore[no-any-return]

    columns, limits = [inside(kind) for kind in kinds], [nothing] * 4
    if kinds[2] is None and kinds[1] is not None and bounds is not None:
        limits = [_sum_lengths(lengths) for lengths in _bounds.inside(bounds, kinds[1], starts, ends)]
    for stage, values, limit in zip(stages, zip(*columns), zip(*limits)):
        computing, communicating, transfer, waiting, overlapped, spans = values
        is_whole = computing is not None and communicating is not None
        yield {
            "stage_ns": stage.total_ns, "computing_ns": computing, "communicating_ns": communicating,
            "overlapped_ns": overlapped,
            "free_ns": stage.total_ns - (computing or 0) - (communicating or 0) if is_whole else None,
            "spans_ns": spans, **_known(transfer, waiting, limit),
        }  # fmt: skip


def _known(transfer: int | None, waiting: int | None, limits: tuple[int | None, ...]) -> dict[str, int | str | None]:
    """Transfer and waiting of a stage, and how they are known: bounds that meet tell them."""
    if transfer is not None and waiting is not None:
        limits = transfer, transfer, waiting, waiting
    is_told = limits[0] == limits[1] and limits[2] == limits[3]
    how = None if limits[0] is None else "told" if is_told else "bounded"
    between = zip(("transfer_from_ns", "transfer_to_ns", "waiting_from_ns", "waiting_to_ns"), limits)
    lengths = (limits[0], limits[2]) if is_told else (None, None)
    return {"transfer_ns": lengths[0], "waiting_ns": lengths[1], "known": how, **dict(between)}
