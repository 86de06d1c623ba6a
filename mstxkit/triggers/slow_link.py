"""Which groups' collectives take long although everybody has entered in time, and which ranks those groups share.

A group is compared with its own history, and with groups that do the same in the same stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Mapping

from ._declare import setting


@dataclass(frozen=True)
class SlowLink:
    """When is a link slow?"""

    effect: float = setting(0.5, 0.05, 100, "Time that its collectives take more than usual, as a share.")
    impact: float = setting(0.015, 0.0, 1, "Share of the step that this is at least.")
    steps: int = setting(3, 1, 1000, "Steps in which it was seen, at least.")
    peers: int = setting(2, 1, 1000, "Other groups that a group is compared with, at least.")


TRIGGER = SlowLink


def find_shared(groups: Mapping[int, tuple[int, ...]], slow: Iterable[int]) -> tuple[int, ...]:
    """The ranks that all slow groups share and no healthy one joins in the same way; () where that separates nothing.

    Args:
        groups: All groups that were compared, with their ranks.
        slow: Those of them that are slow.
    """
    slow = set(slow)
    if not slow or not all(groups.get(group) for group in slow):
        return ()
    shared = set.intersection(*(set(groups[group]) for group in slow))
    fast = [set(ranks) for group, ranks in groups.items() if group not in slow]
    alone = sorted(rank for rank in shared if not any(rank in ranks for ranks in fast))
    if len(alone) == 1 and len(slow) > 1:
        return (alone[0],)
    is_pair = len(shared) == 2 and not any(shared <= ranks for ranks in fast)
    return tuple(sorted(shared)) if is_pair else ()


def is_slow(settings: SlowLink, seconds: float, usual_s: float, step_s: float) -> bool:
    """Does a group's collectives take so much longer than usual that the step feels it?"""
    more_s = seconds - usual_s
    return more_s > settings.effect * usual_s and more_s > settings.impact * step_s
