"""Is a range stuck? It has been open for longer than it ever should, and nothing goes on inside."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Mapping, NamedTuple, Sequence

from ._declare import setting

# Stages that last, and in which little is recorded: nobody is alarmed as soon as for others.
SLOW_STAGES = ("save_checkpoint", "evaluate", "weight_sync", "sleep", "wake_up")
# How long a kind of range lasts is known once so many have ended.
_KNOWN_AFTER = 3


@dataclass(frozen=True)
class Hang:
    """When is a range stuck?"""

    after_s: float = setting(0.0, 0.0, 86_400, "Seconds without progress; 0: what capture(hang_s=...) says.")
    p99: float = setting(3.0, 1.0, 1000, "Times what 99 of 100 earlier ones took, where that is longer.")
    works: float = setting(
        10.0, 1.0, 1000, "Times the limit, where CPU or disk work, and for slow stages and the first waits."
    )


TRIGGER = Hang


class QuietRange(NamedTuple):
    """What is known of a range that is open.

    Args:
        quiet_s: For so long nothing inside has ended or begun.
        past_s: How long earlier ones took, at least those that took a third of `hang_s`: shorter ones cannot matter.
        works: Do CPU or disk work for its process?
        stage: Canonical key, of `slowest_stage`; "" for none.
    """

    quiet_s: float
    past_s: Sequence[float] = ()
    works: bool = False
    stage: str = ""


def slowest_stage(stages: Sequence[str]) -> str:
    """The stage by which it is told how long a range may last: what a slow stage encloses is as slow.

    Args:
        stages: Canonical keys, the range's own last, those that enclose it before it.
    """
    return next((stage for stage in stages if stage in SLOW_STAGES), stages[-1])


def limit_s(settings: Hang, hang_s: float, seen: QuietRange) -> float:
    """How long it may be quiet; beyond that it is stuck. Pure."""
    limit_s = max(settings.after_s or hang_s, settings.p99 * p99_s(seen.past_s))
    return limit_s * (settings.works if seen.works or seen.stage in SLOW_STAGES else 1.0)


def patience_s(settings: Hang, limit_s: float, ended: int) -> float:
    """How long it may be quiet while it waits for somebody that nobody records. Pure.

    How long that takes is not known at first: the first rollout of a job, by an engine elsewhere, has no p99.

    Args:
        limit_s: As for anybody.
        ended: So many of its kind have ended in this process.
    """
    return limit_s * settings.works if ended < _KNOWN_AFTER else limit_s


def of_values(values: Mapping[str, float]) -> Hang:
    """The settings with those of `hang.<name>` that are among these, and allowed."""
    allowed = {
        field.name: values[f"hang.{field.name}"]
        for field in fields(Hang)
        if field.metadata["least"] <= values.get(f"hang.{field.name}", -1) <= field.metadata["most"]
    }
    return Hang(**allowed)


def p99_s(past_s: Sequence[float]) -> float:
    """What 99 of 100 took; of fewer than 100 the longest; 0 of none."""
    ordered = sorted(past_s)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))] if ordered else 0.0
