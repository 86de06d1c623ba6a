"""Exchanges of time stamps between a host and whoever judges: plain values, that any transport can carry.

The judge's clock is the reference. A question says when it left, the answer when it arrived there and left again; when
it was back is known here. How far the clocks are apart follows in `judging/clock_bounds.py`, with a bound that holds
however the way there and the way back differ.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping, NamedTuple

from ..host import identity

REACHED, ANSWERED, BOOT = "reached_ns", "answered_ns", "boot"
# A burst of so many every so often: the quickest of them counts. Seconds.
BURST, EVERY_S, FIRST_S = 8, 30.0, 2.0
# Of a burst nothing more is asked after an answer that took so long: the way is busy, or somebody waits there.
_PATIENCE_S = 0.5


class Stamps(NamedTuple):
    """One exchange, ns of CLOCK_MONOTONIC: left here, arrived there, left there, was back here; `boot` of there."""

    boot: str
    sent_ns: int
    reached_ns: int
    answered_ns: int
    back_ns: int


def answer_exchange() -> dict[str, Any]:
    """What the judge's process sends back, made as the question arrives."""
    now_ns = time.monotonic_ns()
    return {BOOT: identity.boot_id(), REACHED: now_ns, ANSWERED: now_ns}


def read_stamps(sent_ns: int, answered: object, back_ns: int) -> Stamps | None:
    """The exchange, or None where the answer is none."""
    if not isinstance(answered, Mapping):
        return None
    boot, reached, left = (answered.get(key) for key in (BOOT, REACHED, ANSWERED))
    if not isinstance(boot, str) or type(reached) is not int or type(left) is not int:
        return None
    return Stamps(boot[:80], sent_ns, reached, left, back_ns)


class Exchanges:
    """Those of one host with the judge. Used on one thread of ours."""

    def __init__(self) -> None:
        self._next_s, self._pause_s = 0.0, FIRST_S

    def is_due(self) -> bool:
        """Is it time for a burst? Twice within the first seconds, then every half minute."""
        return time.monotonic() >= self._next_s

    def burst(self, ask: Callable[[], Mapping[str, Any] | None]) -> list[Stamps]:
        """Exchange stamps; the quickest two of them, for the next batch's `clocks`. `ask`: asks and waits for the
        `answer`; None where there is none in time. May raise what the transport raises.
        """
        self._next_s, self._pause_s = time.monotonic() + self._pause_s, EVERY_S
        exchanged: list[Stamps] = []
        for _ in range(BURST):
            sent_ns = time.monotonic_ns()
            got = read_stamps(sent_ns, ask(), time.monotonic_ns())
            if got is None:
                break
            exchanged.append(got)
            if got.back_ns - got.sent_ns > _PATIENCE_S * 1e9:
                break
        return sorted(exchanged, key=lambda each: each.back_ns - each.sent_ns)[:2]
