"""Numbers are shown with three digits and a unit that fits."""

from __future__ import annotations

import pytest

from mstxkit.reading.report.units import ranks_in_words, share_over, write_duration, write_size


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (0, "0 ns"), (999, "999 ns"), (1_000, "1.00 µs"), (12_345, "12.3 µs"), (999_999, "1000 µs"),
        (1_500_000, "1.50 ms"), (119_000_000_000, "119 s"), (120_000_000_000, "2.00 min"),
        (7_200_000_000_000, "2.00 h"),
        (172_800_000_000_000, "2.00 d"),
    ],
)  # fmt: skip
def test_durations(ns: int, shown: str) -> None:
    assert write_duration(ns) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (1023, "1023 B"), (1 << 20, "1.00 MiB"), (3 << 30, "3.00 GiB")]
)
def test_sizes(count: int, shown: str) -> None:
    assert write_size(count) == shown


def test_shares() -> None:
    assert share_over(183, 100) == "+83 %"
    assert share_over(1, 0) == ""


@pytest.mark.parametrize(
    ("ranks", "shown"),
    [
        ((3,), "rank 3"), ((0, 2, 3, 4), "ranks 0,2-4"), (range(10_240), "ranks 0-10239"),
        (range(3, 10_240, 64), "160 ranks: 3,67,131,195,259,323,387,451,515,579,643,707,771,835,899,…"),
    ],
)  # fmt: skip
def test_of_many_ranks_some_are_named_and_it_is_said_how_many_there_are(ranks: tuple[int, ...], shown: str) -> None:
    assert ranks_in_words(ranks) == shown
