"""Device time of a recording, stage by stage: which process of the run it belongs to, and what each stage holds of it.

Computing wins over communicating, as in msprof: what is both counts as computing, and as overlapped besides. What is
neither is free. Stages are brought to the recording's clock, so that the three add up to the stage exactly.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Sequence

import numpy as np
import polars as pl

from ...host.names import safe_domain, safe_message
from ..frames import make_schema
from ..intervals import Intervals, join_stretches
from ..processes import Process, rank_of, role_of
from ..run_files import RunFiles
from ..tables import stages, waits
from . import _bounds, _clock_fit
from ._clock_fit import ClockFit
from ._trace import NAME_CHARACTERS, NO_NAMES, BoundedCollectives, DeviceTrace, NamedStretches, Times

_LIMITS = ("transfer_from_ns", "transfer_to_ns", "waiting_from_ns", "waiting_to_ns")
DEVICE_SCHEMA = make_schema(
    "rank step stage role host count stage_ns computing_ns communicating_ns transfer_ns waiting_ns overlapped_ns "
    f"free_ns spans_ns error_ns clock source file known {' '.join(_LIMITS)}",
    count=pl.Int64,
)
_CALLED = {"domain": pl.String, "name": pl.String, "other": pl.String}
_FOUND = {"process": pl.UInt32, "start_ns": pl.Int64, "duration_ns": pl.Int64, "other": pl.String}
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


def find_hosts(files: RunFiles, traces: Sequence[DeviceTrace]) -> dict[int, list[HostProcess]]:
    """The processes of each rank of these traces. Ranges are read only where a trace has some of such names."""
    wanted = {trace.rank for trace in traces}
    names = {name for trace in traces for name in trace.ranges.names}
    ranks = {process.index: rank for process in files.processes if (rank := rank_of(process)) is not None}
    ranks = ranks or {process.index: 0 for process in files.processes}  # profiles of one that never learns its rank
    processes = [process for process in files.processes if ranks.get(process.index, -1) in wanted]
    rows = stages.pick_outermost(waits.only_work(files.stage_rows))
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
    parts = [pl.DataFrame(schema=_FOUND)]
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
        parts.append(same.join(texts_there, on=["domain", "name"]).head(left).select(*_FOUND))
        left -= parts[-1].height
        if left <= 0:
            break
    every = pl.concat(parts, how="vertical_relaxed")
    by_process = {}
    for (process,), rows in every.partition_by("process", as_dict=True).items():
        starts = rows["start_ns"].to_numpy()
        ends, called_so = starts + rows["duration_ns"].to_numpy(), rows["other"].to_list()
        by_process[process] = NamedStretches.of(called_so, np.arange(rows.height), starts, ends)
    return by_process


def join_trace(trace: DeviceTrace, candidates: Sequence[HostProcess]) -> JoinedTrace:
    """Rows of a trace by the process that it belongs to, of those of its rank."""
    extent = trace.extent
    if extent is None:
        return JoinedTrace([], _clock_fit.assume_wall(0), NOTHING_IN_IT)
    fits = [(host, _fit_of(trace, host)) for host in candidates if host.stages.height]
    if not fits:
        return JoinedTrace([], _clock_fit.assume_wall(0), f"is of rank {trace.rank}, of which the run has no stage")
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
    fit = _clock_fit.fit_clocks(trace.ranges, host.ranges, own_error_ns)
    if fit is not None:
        return fit
    why = "it has no ranges of the host" if not len(trace.ranges.starts) else "none of its ranges is the run's"
    return _clock_fit.assume_wall(own_error_ns, f"{why}: both clocks are taken to be the wall clock")


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


def _tell_kinds(trace: DeviceTrace) -> dict[str, Intervals | None]:
    """What a recording tells, each without what wins over it; None where it does not tell."""
    computing, whole, both = trace.computing, trace.communicating, None
    if whole is not None and computing is not None:
        whole, both = whole.without(computing), whole.cut(computing)
    transfer, waiting = trace.transfer, trace.waiting
    if whole is not None and transfer is not None and waiting is not None:
        transfer = transfer.cut(whole)
        waiting = waiting.cut(whole).without(transfer)
    return {
        "computing_ns": computing, "communicating_ns": whole, "transfer_ns": transfer, "waiting_ns": waiting,
        "overlapped_ns": both, "spans_ns": trace.spans,
    }  # fmt: skip


def _make_rows(trace: DeviceTrace, extent: tuple[int, int], host: HostProcess, clock: ClockFit) -> list[dict[str, Any]]:
    starts, ends = _stages_there(host, clock)
    starts, ends = np.maximum(starts, extent[0]), np.minimum(ends, extent[1])
    inside = np.flatnonzero(ends > starts)
    if not len(inside):
        return []
    there = host.stages[inside].select("step", pl.col("stage").cast(pl.String))
    keyed = there.with_columns(start=pl.Series(starts[inside]), end=pl.Series(ends[inside]))
    grouped = keyed.group_by("step", "stage", maintain_order=True).agg("start", "end").sort("step", "stage")
    stretches = [join_stretches(*both) for both in grouped.select("start", "end").iter_rows()]
    counts = grouped.select("step", "stage", count=pl.col("start").list.len().cast(pl.Int64))
    who = {"rank": trace.rank, "role": role_of(host.process), "host": host.process.host}
    return [
        {**who, **row, "clock": clock.how, "source": trace.source,
         "error_ns": min(2 * row["count"] * clock.error_ns, row["stage_ns"])}
        for row in counts.hstack(_sum_figures(_tell_kinds(trace), trace.bounds, stretches)).to_dicts()
    ]  # fmt: skip


def _sum_figures(
    kinds: dict[str, Intervals | None], bounds: BoundedCollectives | None, stages: list[Intervals]
) -> pl.DataFrame:
    """Lengths of what each stage of a step holds; of all at once, as each kind may have millions of stretches. Bounds
    of transfer and waiting that meet tell them.
    """
    first = np.cumsum([0, *(len(stage.starts) for stage in stages[:-1])])
    starts, ends = (np.concatenate([stage[at] for stage in stages]) for at in (0, 1))
    each = {name: None if kind is None else kind.inside(starts, ends) for name, kind in kinds.items()}
    transfer, waiting, whole = each["transfer_ns"], each["waiting_ns"], kinds["communicating_ns"]
    limits: Any = (transfer, transfer, waiting, waiting) if waiting is not None else [None] * 4
    if transfer is None and whole is not None and bounds is not None:
        limits = _bounds.bound_inside(bounds, whole, starts, ends)
    each.update(zip(_LIMITS, limits))
    columns = {
        name: [None] * len(stages) if lengths is None else np.add.reduceat(lengths, first)
        for name, lengths in {"stage_ns": ends - starts, **each}.items()
    }
    at_least, at_most, waited, waited_most = map(pl.col, _LIMITS)
    is_told = (at_least == at_most) & (waited == waited_most)
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64)).with_columns(
        free_ns=pl.col("stage_ns") - pl.col("computing_ns") - pl.col("communicating_ns"),
        transfer_ns=pl.when(is_told).then(at_least), waiting_ns=pl.when(is_told).then(waited),
        known=pl.when(is_told).then(pl.lit("told")).when(at_least.is_not_null()).then(pl.lit("bounded")),
    )  # fmt: skip
