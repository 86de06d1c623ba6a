"""Numbers as people read them: three digits and a unit."""

from __future__ import annotations

from typing import Iterable, Sequence

from ...store import values

# Unit, its size, and how many of it there are at least where it is used.
_TIMES = (("d", 86_400e9, 2), ("h", 3_600e9, 2), ("min", 60e9, 2), ("s", 1e9, 1), ("ms", 1e6, 1), ("µs", 1e3, 1))
_SIZES = (("GiB", 1 << 30, 1), ("MiB", 1 << 20, 1), ("KiB", 1 << 10, 1))
_SPANS_SHOWN = 60  # characters


def write_duration(ns: float) -> str:
    """12.3 ms. From two minutes on in minutes, then in hours, then in days."""
    return _three_digits(ns, _TIMES, "ns")


def write_size(count: float) -> str:
    """12.3 MiB, from bytes."""
    return _three_digits(count, _SIZES, "B")


def _three_digits(value: float, units: Sequence[tuple[str, float, int]], smallest: str) -> str:
    for unit, size, least in units:
        if abs(value) >= least * size:
            decimals = sum(abs(value / size) < limit for limit in (99.95, 9.995))
            return f"{value / size:.{decimals}f} {unit}"
    return f"{value:.0f} {smallest}"


def share_over(value: float, reference: float) -> str:
    """By how much `value` is above `reference`, in percent: +83 %."""
    return f"{100 * (value / reference - 1):+.0f} %" if reference > 0 else ""


def write_count(count: int, what: str, several: str = "") -> str:
    """`1 host`, `1,024 hosts`."""
    return f"{count:,} {what if count == 1 else several or what + 's'}"


def write_spans(ranks: Iterable[int]) -> str:
    """`0,2-7`."""
    return ",".join(values.write_spans(ranks))


def ranks_in_words(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0,2-7`; of more than fit on a line those that do: `160 ranks: 3,67,131,…`."""
    numbers = set(ranks)
    text = write_spans(numbers)
    if len(text) > _SPANS_SHOWN:
        return f"{len(numbers)} ranks: {text[:_SPANS_SHOWN].rpartition(',')[0]},…"
    return f"rank{'s' * (len(numbers) > 1)} {text}"
