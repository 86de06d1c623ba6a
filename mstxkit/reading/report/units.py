"""Numbers as people read them: three digits and a unit."""

from __future__ import annotations

from typing import Iterable

from ...store import values

_TIMES = (
    (86_400_000_000_000, "d"), (3_600_000_000_000, "h"), (60_000_000_000, "min"), (1_000_000_000, "s"),
    (1_000_000, "ms"), (1_000, "µs"),
)  # fmt: skip
_SPANS_SHOWN = 60  # characters
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def write_duration(ns: float) -> str:
    """12.3 ms. From two minutes on in minutes, then in hours, then in days."""
    for size, unit in _TIMES:
        if abs(ns) >= (2 * size if unit in ("d", "h", "min") else size):
            return f"{_three_digits(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def write_size(count: float) -> str:
    """12.3 MiB, from bytes."""
    for unit_bytes, unit in _SIZES:
        if count >= unit_bytes:
            return f"{_three_digits(count / unit_bytes)} {unit}"
    return f"{count:.0f} B"


def _three_digits(value: float) -> str:
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


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
