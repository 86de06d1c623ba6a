"""Stalls of the last steps of a role: who was late once, where, and by how much."""

from __future__ import annotations

from collections import Counter, deque
from typing import Callable, NamedTuple

import numpy as np

from ..triggers import jitter
from .evidence import Matrix, Peer, Truths
from .findings import Finding, Key
from .measuring import MeasuredStep

_STEPS = 60
NOW_AND_THEN = "now and then"
_A_STEP_AT_MOST = 8


class Stall(NamedTuple):
    """One of them."""

    step: int
    stage: str
    member: str
    host: str
    lost_s: float


class Stalls:
    """Remembers those of the last steps."""

    def __init__(self) -> None:
        self._stalls: deque[Stall] = deque(maxlen=_STEPS * _A_STEP_AT_MOST)
        self._numbers: deque[int] = deque(maxlen=_STEPS)

    def add(
        self, settings: jitter.Jitter, step: int, measured: MeasuredStep, seconds: Matrix, step_s: float,
        peers: tuple[Peer, ...], keys: tuple[str, ...], but: Truths, lost_s: Callable[[str, str, int, float], float],
    ) -> list[Finding]:  # fmt: skip
        """One step more. `seconds`: (M, K) by how much longer it took. `but`: (M,) who is known to be slow always.
        `lost_s`: what the step loses by so many seconds of a member in a piece.
        """
        if step not in self._numbers:
            self._numbers.append(step)
        lasting = {key for key, lasts in zip(keys, but.tolist()) if lasts}
        if lasting and any(stall.member in lasting for stall in self._stalls):
            self._stalls = deque((stall for stall in self._stalls if stall.member not in lasting), self._stalls.maxlen)
        with np.errstate(invalid="ignore"):
            is_stall = (measured.excess > settings.deviations * measured.noise) & (seconds > settings.stall * step_s)
        members, pieces = np.nonzero(is_stall & ~but[:, None])
        for member, piece in list(zip(members.tolist(), pieces.tolist()))[:_A_STEP_AT_MOST]:
            peer, kind = peers[member], measured.kinds[piece]
            lost = lost_s(kind.where, kind.stage, member, float(seconds[member, piece]))
            self._stalls.append(Stall(step, kind.stage, keys[member], peer.host, lost))
        while self._stalls and self._stalls[0].step < self._numbers[0]:
            self._stalls.popleft()
        return self._finding(settings, step_s, peers, keys)

    def _finding(
        self, settings: jitter.Jitter, step_s: float, peers: tuple[Peer, ...], keys: tuple[str, ...]
    ) -> list[Finding]:
        stalls = self._stalls
        lost_s = sum(stall.lost_s for stall in stalls) / len(self._numbers)
        steps = len({stall.step for stall in stalls})
        is_enough = len(self._numbers) >= _STEPS // 2 and lost_s >= settings.impact * step_s
        if not is_enough or not jitter.is_fault(settings, steps, len(self._numbers)):
            return []
        stage = Counter(stall.stage for stall in stalls).most_common(1)[0][0]
        member, of_member = Counter(stall.member for stall in stalls).most_common(1)[0]
        host, of_host = Counter(stall.host for stall in stalls).most_common(1)[0]
        evidence: dict[str, object] = {"stalls": len(stalls), "longest_s": max(stall.lost_s for stall in stalls)}
        has_hosts = len({peer.host for peer in peers}) > 1
        if has_hosts and host and of_host >= settings.alike * len(stalls):
            evidence["host"] = host
        is_same = of_member >= settings.alike * len(stalls) and member in keys
        place = keys.index(member) if is_same else -1
        return [Finding(Key("jitter", NOW_AND_THEN, stage), place, steps, lost_s / step_s, lost_s, 1.2, (), evidence)]
