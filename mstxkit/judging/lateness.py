"""By how much later than the first each rank enters its groups' collectives.

A difference within the bound of the clocks is no difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .evidence import MEET, Collectives

if TYPE_CHECKING:
    from .evidence import Seconds, Whole


class Late(NamedTuple):
    """By how much later than the first each of K entries came, in collectives that at least two are known to enter.

    Args:
        at: (K,) which entries of the collectives these are.
        late_s: (K,) from 0 on.
        error_s: (K,) the bound of that: the member's own and that of who came first.
    """

    at: Whole
    late_s: Seconds
    error_s: Seconds


def late_in(entered: Collectives, error_s: Seconds) -> Late:
    """Each entry against the first of its collective; of sends and receives nothing: one is to come before the other.

    Args:
        error_s: (M,) bound of the error of each member's times.
    """
    order = np.lexsort((entered.entered_s, entered.sequence, entered.group))
    order = order if entered.kind is None else order[entered.kind[order] == MEET]
    if not len(order):
        return Late(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    group, sequence = entered.group[order], entered.sequence[order]
    begins = np.concatenate([[True], (group[1:] != group[:-1]) | (sequence[1:] != sequence[:-1])])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    size = np.bincount(np.cumsum(begins) - 1)[np.cumsum(begins) - 1]
    errors = error_s[entered.member[order]]
    late = entered.entered_s[order] - entered.entered_s[order][first]
    kept = size > 1
    return Late(order[kept], late[kept], np.where(first == np.arange(len(order)), 0.0, errors + errors[first])[kept])
