"""The job as samples for Prometheus: names, what they mean, labels that cannot grow without bound.

Values alone in, values alone out. A rank is a label only where it is named: of verdicts that hold, and of those who
are late. However large the job is, there are at most `SERIES_AT_MOST` samples; what does not fit is counted.

Source: prometheus-client 0.26.0, `prometheus_client/exposition.py` (`generate_latest`), `registry.py`.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, Iterator, NamedTuple, Sequence

from ..reading.report.escape import for_terminal
from ..store.job_file import JobState, RoleFigures
from ..store.verdicts import KINDS, Verdict

SERIES_AT_MOST = 2_000
STAGES_AT_MOST, VERDICTS_AT_MOST, LATE_AT_MOST = 240, 48, 48
LABEL_AT_MOST = 100
_NAME_AT_MOST = 60
MISSING = "prometheus-client is not installed here: pip install 'mstxkit[metrics]'"


class Family(NamedTuple):
    """One name of metrics: its meaning, with the unit, and its labels besides `run`."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ()


class MetricSample(NamedTuple):
    """One value, with the values of the labels of its family, `run` first."""

    name: str
    labels: tuple[str, ...]
    value: float


_STAGE = ("role", "stage")
FAMILIES = (
    Family("mstxkit_step", "Step that was judged last.", ("role",)),
    Family("mstxkit_step_seconds", "From the first begin to the last end in that step.", ("role",)),
    Family("mstxkit_members", "Processes that worked in that step: a driver that waits for them is none.", ("role",)),
    Family("mstxkit_wait_ratio", "Share of the step in which a member waits for others.", ("role",)),
    Family("mstxkit_stage_seconds_max", "Time in a stage of the member with the longest, in that step.", _STAGE),
    Family("mstxkit_stage_seconds_median", "Time in a stage of the median member.", _STAGE),
    Family(
        "mstxkit_stage_slowest_rank",
        "Rank of the longest; where they wait for each other, of the last to come.",
        _STAGE,
    ),
    Family("mstxkit_stage_tokens_per_second", "Tokens a second of all members together.", _STAGE),
    Family("mstxkit_stage_mfu_ratio", "Share of the peak FLOPs of the devices.", _STAGE),
    Family("mstxkit_late_seconds", "How much later than the median a rank entered a stage.", (*_STAGE, "rank", "host")),
    Family("mstxkit_verdicts", "Verdicts that hold.", ("kind",)),
    Family("mstxkit_verdict_impact_ratio", "Share of the step that is lost.", ("kind", *_STAGE, "rank")),
    Family("mstxkit_escalations", "Verdicts that hold and have led to a profile."),
    Family("mstxkit_hosts", "Hosts that have handed anything over.", ("state",)),
    Family("mstxkit_rows_missed", "Sums of stages that never reached who judges."),
    Family("mstxkit_batches_dropped", "Batches that the run folder did not take."),
    Family("mstxkit_judged_timestamp_seconds", "When the figures were made: old ones tell that nobody judges."),
    Family("mstxkit_series_left_out", "Samples that were too many."),
)
BY_NAME = {family.name: family for family in FAMILIES}


def run_label(name: str, run_id: str) -> str:
    """A run's label: its folder's name, and enough of its id that no other run has the same."""
    return f"{clean_label(name)[:_NAME_AT_MOST]}-{clean_label(run_id)[:8]}"


def clean_label(text: str) -> str:
    """A label's value: visible characters, not too many."""
    return for_terminal(text, LABEL_AT_MOST)[: 2 * LABEL_AT_MOST]


def make_samples(run: str, state: JobState, verdicts: Sequence[Verdict]) -> list[MetricSample]:
    """All of a job, each once, from its state and the verdicts that hold; `run` is its `run_label`."""
    kept: dict[tuple[str, tuple[str, ...]], MetricSample] = {}
    left_out = 0
    for sample in (*_of_job(state, verdicts), *_of_roles(state.roles)):
        whole = MetricSample(sample.name, (run, *map(clean_label, sample.labels)), sample.value)
        is_kept = len(kept) < SERIES_AT_MOST - 1 and math.isfinite(sample.value)
        if is_kept and whole[:2] not in kept:
            kept[whole[:2]] = whole
        else:
            left_out += 1
    stages = sum(len(role.stages) for role in state.roles)
    left_out += 2 * max(0, stages - STAGES_AT_MOST)
    return [*kept.values(), MetricSample("mstxkit_series_left_out", (run,), left_out)]


def _of_job(state: JobState, verdicts: Sequence[Verdict]) -> Iterator[MetricSample]:
    handing = max(0, state.hosts - state.ended - state.silences)
    for name, count in (("reporting", handing), ("silent", state.silences), ("ended", state.ended)):
        yield MetricSample("mstxkit_hosts", (name,), count)
    yield MetricSample("mstxkit_rows_missed", (), state.missed_rows)
    yield MetricSample("mstxkit_batches_dropped", (), state.dropped_batches)
    yield MetricSample("mstxkit_judged_timestamp_seconds", (), state.written_ns / 1e9)
    yield MetricSample("mstxkit_escalations", (), sum(bool(v.request and not v.no_request) for v in verdicts))
    for kind in KINDS:
        yield MetricSample("mstxkit_verdicts", (kind,), sum(verdict.kind == kind for verdict in verdicts))
    for verdict in sorted(verdicts, key=lambda verdict: -verdict.impact_ratio)[:VERDICTS_AT_MOST]:
        rank = "" if verdict.rank is None else str(verdict.rank)
        labels = (verdict.kind, verdict.role, verdict.stage or "", rank)
        yield MetricSample("mstxkit_verdict_impact_ratio", labels, verdict.impact_ratio)


def _of_roles(roles: Sequence[RoleFigures]) -> Iterator[MetricSample]:
    for role in roles:
        yield MetricSample("mstxkit_step", (role.role,), role.step)
        yield MetricSample("mstxkit_step_seconds", (role.role,), max(0, role.end_ns - role.begin_ns) / 1e9)
        yield MetricSample("mstxkit_members", (role.role,), role.members)
        yield MetricSample("mstxkit_wait_ratio", (role.role,), role.wait_ratio)
    stages = [(role.role, stage) for role in roles for stage in role.stages]
    for name, stage in sorted(stages, key=lambda pair: -pair[1].max_s)[:STAGES_AT_MOST]:
        values = {
            "seconds_max": stage.max_s, "seconds_median": stage.median_s, "slowest_rank": stage.slowest_rank,
            "tokens_per_second": stage.tokens_per_s, "mfu_ratio": stage.mfu_ratio,
        }  # fmt: skip
        for figure, value in values.items():
            if value is not None:
                yield MetricSample(f"mstxkit_stage_{figure}", (name, stage.stage), value)
    late = [(role.role, rank) for role in roles for rank in role.late if rank.rank is not None]
    for name, rank in sorted(late, key=lambda pair: -pair[1].late_s)[:LATE_AT_MOST]:
        yield MetricSample("mstxkit_late_seconds", (name, rank.stage, str(rank.rank), rank.host), rank.late_s)


def has_prometheus() -> bool:
    """Is prometheus-client there?"""
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        return False
    return True


def as_page(of: Sequence[MetricSample]) -> bytes:
    """Prometheus' text. ImportError: there is no prometheus-client. *Cost*: about 10 us a sample."""
    from prometheus_client import generate_latest
    from prometheus_client.core import GaugeMetricFamily

    families = []
    for family in FAMILIES:
        metrics = GaugeMetricFamily(family.name, family.meaning, labels=("run", *family.labels))
        for sample in of:
            if sample.name == family.name:
                metrics.add_metric(sample.labels, sample.value)
        families += [metrics] if metrics.samples else []
    # What is collected from: these samples alone, nothing of the process.
    collected: Any = SimpleNamespace(collect=lambda: families)
    return generate_latest(collected)
