"""Exchanges of time stamps between a host and whoever judges: plain values, that any transport can carry.

The judge's clock is the reference. A question says when it left, the answer when it arrived there and left again; when
it was back is known here. How far the clocks are apart follows in `judging/clock_bounds.py`, with a bound that holds
however the way there and the way back differ.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping, NamedTuple

from ..host import identity

SENT, REACHED, ANSWERED, BOOT = "sent_ns", "reached_ns", "answered_ns", "boot"
# A burst of so many every so often: the quickest of them counts. Seconds.
BURST, EVERY_S, FIRST_S = 8, 30.0, 2.0
# Of a burst nothing more is asked after an answer that took so long: the way is busy, or somebody waits there.
_PATIENCE_S = 0.5

Ask = Callable[[Mapping[str, Any]], "Mapping[str, Any] | None"]


class Stamps(NamedTuple):
    """One exchange, ns of CLOCK_MONOTONIC: left here, arrived there, left there, was back here; `boot` of there."""

    boot: str
    sent_ns: int
    reached_ns: int
    answered_ns: int
    back_ns: int


def question() -> dict[str, Any]:
    """What to send. Made right before that."""
    return {SENT: time.monotonic_ns()}


def answer(reached_ns: int | None = None) -> dict[str, Any]:
    """What the judge's process sends back, made right before that.

    Args:
        reached_ns: When the question arrived, where that was before; CLOCK_MONOTONIC.
    """
    now_ns = time.monotonic_ns()
    return {BOOT: identity.boot_id(), REACHED: now_ns if reached_ns is None else reached_ns, ANSWERED: now_ns}


def stamps(sent: Mapping[str, Any], answered: object, back_ns: int) -> Stamps | None:
    """The exchange, or None where the answer is none."""
    if not isinstance(answered, Mapping):
        return None
    boot, reached, left = (answered.get(key) for key in (BOOT, REACHED, ANSWERED))
    if not isinstance(boot, str) or type(reached) is not int or type(left) is not int:
        return None
    return Stamps(boot[:80], sent[SENT], reached, left, back_ns)


class Exchanges:
    """Those of one host with the judge. Used on one thread of ours."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._is_first = True

    def is_due(self) -> bool:
        """Is it time for a burst? Twice within the first seconds, then every half minute."""
        return time.monotonic() >= self._next_s

    def burst(self, ask: Ask) -> list[Stamps]:
        """Exchange stamps; the quickest two of them, for the next batch's `clocks`.

        Args:
            ask: Sends a question and waits for its answer; None where there is none in time. May raise what the
                transport raises.
        """
        self._next_s = time.monotonic() + (FIRST_S if self._is_first else EVERY_S)
        self._is_first = False
        exchanged: list[Stamps] = []
        for _ in range(BURST):
            sent = question()
            got = stamps(sent, ask(sent), time.monotonic_ns())
            if got is None:
                break
            exchanged.append(got)
            if got.back_ns - got.sent_ns > _PATIENCE_S * 1e9:
                break
        return sorted(exchanged, key=lambda each: each.back_ns - each.sent_ns)[:2]


def as_json(exchanged: list[Stamps]) -> list[list[Any]]:
    """For `clocks` in the head of a batch."""
    return [list(each) for each in exchanged]
