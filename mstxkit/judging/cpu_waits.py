"""How much of its time each process of a host has waited for a CPU of late, against how much it ran.

A host with fewer CPUs than what runs there makes whichever process it likes wait. Who is slow by that is no slower than
the others at anything: it is held up.
"""

from __future__ import annotations

import math
from typing import Any, Iterable, NamedTuple

import numpy as np

from ..store.values import forget_oldest
from ..store.verdicts import JITTER
from ..triggers.late_rank import after_others
from .evidence import Peer, Seconds
from .findings import Finding

# Of so many processes; what is older counts less by this share with each hand-over.
AT_MOST, _FADES = 1 << 16, 0.2
_LEAST_S, _LEAST_RAN, _NS = 1e-3, 1e-3, 1e-9
_UNKNOWN = (math.nan, math.nan)
# What waiting for a CPU explains of what is lost, at least, so that it is the cause.
_EXPLAINS = 0.5
# Of who waits for a CPU by so many times what is lost, nobody can tell whether it is slow: whichever of several gets a
# CPU a little later looks so. In 12 trainings on busy machines healthy ranks that stood out waited 7 to 30 times as
# long, slow ones 0.5 to 5 times in the middle.
_DROWNS = 6.0


class _Counted(NamedTuple):
    """As it was told last, ns, and what has come since the time before, fading; seconds."""

    at_ns: int
    ran_ns: int
    waited_ns: int
    passed_s: float = 0.0
    ran_s: float = 0.0
    waited_s: float = 0.0

    def shares(self) -> tuple[float, float]:
        """Of the time: run, and waited."""
        is_known = self.passed_s > _LEAST_S
        return (self.ran_s / self.passed_s, self.waited_s / self.passed_s) if is_known else _UNKNOWN

    def next(self, at_ns: int, ran_ns: int, waited_ns: int) -> _Counted:
        """One count more; what goes back was of another process."""
        if at_ns == self.at_ns:
            return self
        moved = at_ns - self.at_ns, ran_ns - self.ran_ns, waited_ns - self.waited_ns
        if min(moved) < 0:
            return _Counted(at_ns, ran_ns, waited_ns)
        sums = ((1 - _FADES) * old for old in (self.passed_s, self.ran_s, self.waited_s))
        return _Counted(at_ns, ran_ns, waited_ns, *(old + ns * _NS for old, ns in zip(sums, moved)))


class CpuWaits:
    """What processes say of it, by their names."""

    def __init__(self) -> None:
        self._counted: dict[str, _Counted] = {}

    def take(self, process: str, counts: list[Any]) -> None:
        """`[CLOCK_MONOTONIC, ran, waited]`, ns since the process began; what is nothing of that kind is left out."""
        are_whole = all(type(number) is int and 0 <= number < 1 << 62 for number in counts)
        if not process or len(counts) != 3 or not are_whole:
            return
        before = self._counted.pop(process, None) or _Counted(*counts)  # those that were heard last are at the end
        self._counted[process] = before.next(*counts)
        forget_oldest(self._counted, AT_MOST)

    def of(self, members: Iterable[Peer]) -> Seconds | None:
        """(M, 2) which share of the time each has run, and has waited; NaN: not known. None: of nobody."""
        counted = [self._counted.get(peer.process) for peer in members]
        if not any(counted):
            return None
        return np.array([_UNKNOWN if counts is None else counts.shares() for counts in counted])


def explains_loss(cpu: Seconds | None, lost_s: float, step_s: float) -> bool:
    """Does any of these wait for a CPU by half of what is lost? What collectives take tells of no link then."""
    waited = np.zeros(0) if cpu is None else np.nan_to_num(cpu[:, 1])
    return bool(waited.max(initial=0.0) * step_s >= _EXPLAINS * lost_s)


def held_up(finding: Finding, cpu: Seconds | None, step_s: float) -> Finding:
    """A finding that a rank is slow, or, where it only waits longer for a CPU than the others do, that it is held up.

    Two things must be so: it waits longer than the others, by half of the time that is lost at least; and what it does
    while it runs is stretched by that, by half of what it takes longer. Or it waits so long, with the others or
    without, that what is lost is next to nothing beside that. `cpu`: as of `CpuWaits.of`.
    """
    place = finding.place
    if not finding.blames_a_rank or cpu is None or not np.isfinite(cpu[place]).all():
        return finding
    ran, waited = cpu.T
    stretched = np.log1p(waited / np.maximum(ran, _LEAST_RAN))
    more_waited, more_stretched = (float(after_others(values)[place]) for values in (waited, stretched))
    is_longer = more_waited * step_s >= _EXPLAINS * finding.lost_s
    is_held_up = is_longer and more_stretched >= _EXPLAINS * math.log1p(finding.ratio)
    if not is_held_up and waited[place] * step_s < _DROWNS * finding.lost_s:
        return finding
    evidence = {**finding.evidence, "cpu_wait_ratio": round(float(waited[place]), 4)}
    return finding._replace(key=finding.key._replace(kind=JITTER), evidence=evidence)
