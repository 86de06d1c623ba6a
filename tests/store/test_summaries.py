"""What a process hands over of a stage: 40 bytes that lose nothing that anybody judges by."""

from __future__ import annotations

from builders import packing
from hypothesis import given
from hypothesis import strategies as st

from mstxkit.store import summaries
from mstxkit.store.summaries import StageSummary

BEGIN = st.integers(0, 1 << 61)
# Up to half an hour: in microseconds.
SHORT = st.integers(0, 1_800_000_000).map(lambda us: us * 1000)
WORK_32, WORK_16 = st.none() | st.integers(0, 0xFFFFFFFE), st.none() | st.integers(0, 0xFFFE)


@st.composite
def rows(draw: st.DrawFn) -> StageSummary:
    entered = draw(BEGIN)
    return StageSummary(
        draw(st.none() | st.integers(0, 0xFFFFFFFE)), draw(st.integers(1, 4095)), draw(st.integers(0, 0xFFFF)),
        entered, entered + draw(SHORT), draw(SHORT), None, draw(SHORT), draw(WORK_32), draw(WORK_16), draw(WORK_32),
    )  # fmt: skip


@given(rows())
def test_what_is_handed_over_comes_out_as_it_went_in(row: StageSummary) -> None:
    assert len(row.pack()) == summaries.ROW_BYTES == 40
    assert list(packing.summaries_of(row.pack())) == [row]


@given(st.integers(1, 10**14), st.floats(0, 1))
def test_time_really_spent_inside_is_kept_to_a_part_in_65_534(total_ns: int, share: float) -> None:
    busy_ns = int(total_ns * share)
    (read,) = packing.summaries_of(StageSummary(1, 1, 1, 0, total_ns, total_ns, busy_ns, total_ns).pack())

    assert read.busy_ns is not None and abs(read.busy_ns - busy_ns) <= total_ns / 65_000 + 2_100_000


def test_an_hour_and_more_is_kept_to_milliseconds_and_eternity_saturates() -> None:
    day_ns = 86_400 * 10**9
    (read,) = packing.summaries_of(StageSummary(1, 1, 1, 5, 5 + day_ns, day_ns, None, day_ns).pack())
    (longest,) = packing.summaries_of(StageSummary(1, 1, 1, 0, 1 << 62, 1 << 62, None, 1 << 62).pack())

    assert 0 <= day_ns - read.total_ns < 1_100_000
    assert longest.total_ns > 25 * day_ns


def test_occurrences_saturate_and_half_a_row_is_left_out() -> None:
    data = StageSummary(1, 1, 70_000, 0, 1, 1, None, 1).pack()

    assert [row.occurrences for row in packing.summaries_of(data + data[:39])] == [0xFFFF]
