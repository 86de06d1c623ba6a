"""Stalls of the last steps of a role: who was late once, where, and by how much."""

from __future__ import annotations

from collections import Counter, deque
from operator import attrgetter
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

    order: int  # of its step, from 1
    stage: str
    member: str
    host: str
    lost_s: float


class Stalls:
    """Remembers those of the last steps."""

    def __init__(self) -> None:
        self._stalls: deque[Stall] = deque(maxlen=_STEPS * _A_STEP_AT_MOST)
        self._step, self._order = -1, 0  # the newest, and how many there were

    def add(
        self, settings: jitter.Jitter, step: int, measured: MeasuredStep, seconds: Matrix, step_s: float,
        peers: tuple[Peer, ...], keys: tuple[str, ...], but: Truths, lost_s: Callable[[str, str, int, float], float],
    ) -> list[Finding]:  # fmt: skip
        """One step more; what it loses nothing by is no stall.

        `seconds`: (M, K) by how much longer it took. `but`: (M,) who is known to be slow always. `lost_s`: what the
        step loses by so many seconds of a member in a piece.
        """
        self._step, self._order = step, self._order + (step != self._step)
        lasting = {key for key, lasts in zip(keys, but.tolist()) if lasts}
        if lasting and any(stall.member in lasting for stall in self._stalls):
            self._stalls = deque((stall for stall in self._stalls if stall.member not in lasting), self._stalls.maxlen)
        with np.errstate(invalid="ignore"):
            is_stall = (measured.excess > settings.deviations * measured.noise) & (seconds > settings.stall * step_s)
        members, pieces = np.nonzero(is_stall & ~but[:, None])
        for member, piece in list(zip(members.tolist(), pieces.tolist()))[:_A_STEP_AT_MOST]:
            peer, kind = peers[member], measured.kinds[piece]
            lost = lost_s(kind.where, kind.stage, member, float(seconds[member, piece]))
            if lost >= settings.stall * step_s:
                self._stalls.append(Stall(self._order, kind.stage, keys[member], peer.host, lost))
        while self._stalls and self._stalls[0].order <= self._order - _STEPS:
            self._stalls.popleft()
        return self._finding(settings, step_s, peers, keys)

    def _finding(
        self, settings: jitter.Jitter, step_s: float, peers: tuple[Peer, ...], keys: tuple[str, ...]
    ) -> list[Finding]:
        """Of one member, of one host, or of all: of the smallest that it is. Where nearly all is lost by one member,
        this waits for that one to be sure.
        """
        steps, every, hosts = min(self._order, _STEPS), [*self._stalls], {peer.host for peer in peers}
        of_member, of_host = _most_of(every, "member"), _most_of(every, "host")
        (all_times, _), (_, of_member_s) = _sum_up(every), _sum_up(of_member)
        for stalls, among in ((of_member, len(keys)), (of_host, len(hosts)), (every, 1)):
            times, lost_s = _sum_up(stalls)
            usual = settings.usual * steps / among + (all_times - times) / max(1, among - 1)
            is_ones = stalls is not of_member and of_member_s >= settings.alike * lost_s
            lost_s /= steps
            is_enough = steps >= _STEPS // 2 and lost_s >= step_s * (settings.impact if among > 1 else settings.spread)
            if is_enough and not is_ones and jitter.is_fault(settings, times, usual, among):
                stage = Counter(stall.stage for stall in stalls).most_common(1)[0][0]
                place = keys.index(stalls[0].member) if stalls is of_member and stalls[0].member in keys else -1
                host = {"host": stalls[0].host} if among > 1 and len(hosts) > 1 else {}
                evidence = {"stalls": len(stalls), "longest_s": max(stall.lost_s for stall in stalls), **host}
                key = Key("jitter", NOW_AND_THEN, stage)
                return [Finding(key, place, times, lost_s / step_s, lost_s, 1.2, (), evidence)]
        return []


def _most_of(stalls: list[Stall], owner: str) -> list[Stall]:
    """Those of the member or host by which most is lost."""
    of = {name: [stall for stall in stalls if getattr(stall, owner) == name] for name in map(attrgetter(owner), stalls)}
    return max(of.values(), key=lambda stalls: _sum_up(stalls)[1], default=[])


def _sum_up(stalls: list[Stall]) -> tuple[int, float]:
    """How often, and how long. Of steps in a row they are one: who is slow for longer is not late now and then."""
    at = {(stall.member, stall.order) for stall in stalls}
    return sum((member, order - 1) not in at for member, order in at), sum(stall.lost_s for stall in stalls)
