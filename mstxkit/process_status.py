"""What mstxkit does in this process at this moment, and the job: `status()`, `stage_times()`, `metrics()`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from . import capturing, faults, sinks
from .host import clock, environment, names
from .recorder import current
from .store import livefile

if TYPE_CHECKING:
    from .recorder.process import Recorder


class Status(NamedTuple):
    """What mstxkit does in this process at this moment."""

    on: bool = False
    native: bool = False
    clock: str = ""
    clock_reason: str = ""
    run: str | None = None
    live_file: str | None = None
    sinks: dict[str, str] = {}
    session: str | None = None
    counters: dict[str, int] = {}
    faults: dict[str, int] = {}
    own_cost_ratio: float | None = None
    coalesced: dict[str, int] = {}
    governor: dict[str, Any] = {}


def status() -> Status:
    """What mstxkit does in this process: on or off, which engine and clock, where to, what was lost.

    `counters` and `faults` count since the process began; `own_cost_ratio` is mstxkit's share of the time, 0.001 say.
    Never raises: what cannot be found out, as without memory, is told as being off, and counted as a fault.

    Example:
        >>> import mstxkit
        >>> mstxkit.status().on
        False
        >>> with mstxkit.capture("runs/exp7"):
        ...     mstxkit.status().on
        True
    """
    if environment.is_off():
        return Status(clock_reason="MSTXKIT_OFF is set")
    try:
        try:
            return _status_of(capturing.recorder_here())
        except ValueError:  # another thread has just stopped that recorder, and let go of its live file
            return _status_of(None)
    except Exception as exc:
        faults.note_fault("status", exc)
        return Status(clock_reason=f"{type(exc).__name__} in status()")


def _status_of(recorder: Recorder | None) -> Status:
    from .engine.choose import engine

    counters = dict(engine.counters())
    if recorder is not None:
        counters.update(livefile.read_counters(recorder.live.view))
    coalesced: Counter[str] = Counter()  # calls that were not recorded one by one, since the process began
    for site, _, _, calls in engine.site_costs():
        if calls:
            coalesced[names.as_text(site.name)] += calls
    return Status(
        on=recorder is not None,
        native=engine.NATIVE,
        clock=livefile.CLOCKS.get(engine.clock_kind(), "?"),
        clock_reason=(clock.choose_clock(engine.NATIVE) if recorder is None else recorder.clock).reason,
        run=None if recorder is None else str(recorder.run),
        live_file=None if recorder is None else str(recorder.live.path),
        sinks=sinks.describe_all(),
        session=None if recorder is None else capturing.describe_session(),
        counters=counters,
        faults=dict(faults.counts),
        own_cost_ratio=None if recorder is None else recorder.own_cost_ratio(),
        coalesced=dict(coalesced),
        governor={} if recorder is None else recorder.governed(),
    )


def stage_times(step: int | None = None) -> dict[str, float]:
    """Stage to seconds in this process: of `step`, or of the last finished one. {} while nothing is recorded.

    Args:
        step: Number of the step; None: the last finished one.

    Example:
        >>> import mstxkit
        >>> with mstxkit.capture("runs/exp7"):
        ...     now = mstxkit.step()
        ...     with mstxkit.stage("reward"):
        ...         pass
        ...     list(mstxkit.stage_times(now))
        ['reward']
    """
    if environment.is_off():
        return {}
    from .engine.choose import engine

    with faults.noted("stage_times", MemoryError):
        return engine.stage_times(step)
    return {}


def metrics() -> dict[str, float]:
    """The figures of the job's last judged step, for any logger; {} where nobody has said any here yet. Never raises.

    By name: `mstxkit/time_s/<stage>/max`, `.../median` and `.../slowest_rank`, `mstxkit/tokens_per_s/<stage>` where
    tokens are known, `mstxkit/mfu/<stage>` where `capture` was given its figures, `mstxkit/wait_ratio` (which share of
    the step a rank waits for the last, in or before the stage in which that is most), `mstxkit/verdicts` (how many hold
    and blame somebody).

    *Cost*: a few microseconds for whoever asks at least every three seconds: they are read ahead then, and up to 1.5 s
    old. Else one small file in the host's shared memory is read; the run folder never is.

    Example:
        >>> import mstxkit
        >>> with mstxkit.capture("runs/exp7"):
        ...     mstxkit.metrics()
        {}
    """
    with faults.noted("metrics"):
        recorder = current.of_this_process()
        return {} if recorder is None else recorder.figures.values()
    return {}


__all__ = ["Status", "metrics", "stage_times", "status"]
