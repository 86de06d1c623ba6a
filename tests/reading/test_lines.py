"""Ranges of a line nest, whatever comes; and what ran inside of a coroutine or generator is drawn under it."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pl = pytest.importorskip("polars")

from mstxkit.reading.lines import OPEN_NS, Drawn, Line, Suspended, TrackLines  # noqa: E402

TIMES = st.integers(0, 30)
RECORDS = st.lists(st.tuples(TIMES, TIMES, st.integers(0, 4), st.booleans(), st.booleans()), max_size=30)


def drawn(*ranges: tuple[int, int, int, bool, bool]) -> list[tuple[int, Drawn, Drawn | None]]:
    """Line number, range and what is around it there, of (start, end, depth, driven, apart), last end first."""
    lines, numbers, found = TrackLines(), count(1), []
    for start, end, depth, is_driven, is_apart in ranges:
        one = Drawn(start, end, depth)
        list(lines.leave(one))
        line = lines.put(one, is_driven, is_apart, lambda: Line(next(numbers), "", is_apart))  # noqa: B023
        found.append((line.number, one, line.inside[-2] if len(line.inside) > 1 else None))
    return found


@given(RECORDS, st.booleans())
def test_ranges_of_one_line_nest(records: list[Any], in_order: bool) -> None:
    ranges = [(min(a, b), max(a, b), *rest) for a, b, *rest in records]
    found = drawn(*(sorted(ranges, key=lambda one: -one[1]) if in_order else ranges))

    for at, (number, one, _) in enumerate(found):
        for other in (other for same, other, _ in found[at + 1 :] if same == number):
            assert one.end <= other.start or other.end <= one.start or one.encloses(other) or other.encloses(one)


@given(RECORDS)
def test_begins_are_written_once_and_in_an_order_that_nests(records: list[Any]) -> None:
    """At one instant: after the end of what lies before, and after the begin of what is around."""
    lines, numbers, written, put = TrackLines(), count(1), [], []
    for a, b, depth, is_driven, is_apart in sorted(records, key=lambda one: -max(one[:2])):
        one = Drawn(min(a, b), max(a, b), depth)
        written += lines.leave(one)
        line = lines.put(one, is_driven, is_apart, lambda: Line(next(numbers), "", is_apart))  # noqa: B023
        around = line.inside[-2] if len(line.inside) > 1 else None
        if line.number:
            one.begin = (one,)  # type: ignore[assignment]
            put.append((one, around))
            if one.start < one.end:
                written.append(("end", one))  # type: ignore[arg-type]
    written += lines.leave(None)

    for one, around in put:
        assert written.count(one) == 1  # type: ignore[arg-type]
        assert around is None or around.start < one.start or written.index(around) < written.index(one)  # type: ignore[arg-type]
        for other, _ in put:
            if other.line is one.line and other.end == one.start and other.start < other.end:
                assert written.index(("end", other)) < written.index(one)  # type: ignore[arg-type]


def test_a_sibling_that_began_while_a_generator_was_suspended_is_not_inside_of_it() -> None:
    """In a coroutine: a generator, apart, and beside it what its consumer does; `load` is the generator's."""
    coroutine, generator, use, load = (0, 100, 0, True, False), (5, 90, 1, True, True), (20, 40, 1, False, False), (50, 60, 2, False, False)  # fmt: skip  # noqa: E501

    numbers = {(one.start, one.end): (number, around and around.start) for number, one, around in drawn(coroutine, generator, load, use)}  # fmt: skip  # noqa: E501

    assert numbers == {(0, 100): (1, None), (5, 90): (2, None), (50, 60): (2, 5), (20, 40): (1, 0)}


def test_an_ordinary_range_of_the_consumer_holds_what_is_one_deeper() -> None:
    """A generator from an earlier step is suspended while the next step does something, and resumed in it."""
    found = drawn(
        (0, 100, 1, True, True), (40, 90, 0, False, False), (70, 80, 2, False, False), (50, 60, 1, False, False)
    )

    assert [(number, around and around.start) for number, _, around in found] == [
        (1, None), (0, None), (1, 0), (0, 40),
    ]  # fmt: skip


def test_a_body_resumed_nearer_to_the_ground_than_it_began_keeps_what_runs_in_it() -> None:
    found = drawn((0, 100, 3, True, True), (70, 80, 1, False, False))

    assert [(number, around and around.start) for number, _, around in found] == [(1, None), (1, 0)]


def test_open_ranges_are_around_what_began_in_them() -> None:
    found = drawn((0, OPEN_NS, 0, False, False), (10, OPEN_NS, 1, False, False), (20, 30, 2, False, False))

    assert [(number, around and around.start) for number, _, around in found] == [(0, None), (0, 0), (0, 10)]


def frame(*rows: tuple[int, int, int, int | None, str | None]) -> Any:
    names = ("depth", "start_ns", "duration_ns", "busy_ns", "attributes")
    columns = {name: list(values) for name, values in zip(names, zip(*rows))}
    types = {"busy_ns": pl.Int64, "attributes": pl.String}
    return pl.DataFrame({"process": 0, "track": 0, **columns}, schema_overrides=types).with_columns(open=pl.lit(False))


def test_suspended_is_whom_others_no_deeper_began_after() -> None:
    first = frame((2, 30, 5, None, None), (1, 20, 20, 3, None), (0, 15, 40, None, None))
    then = frame((1, 60, 5, None, None), (0, 10, 90, 9, None), (0, 0, 110, 9, None))
    suspended = Suspended((ranges, pl.DataFrame()) for ranges in (first, then))

    suspended.see(0, 0, 0, 12)
    suspended.see(0, 0, 0, 16)

    assert [suspended.has(0, 0, depth, start) for depth, start in ((1, 20), (0, 10), (0, 0), (0, 12), (0, 16))] == [
        False, True, True, True, False,
    ]  # fmt: skip


def test_calls_added_up_are_nobodys_siblings() -> None:
    ranges = frame((0, 20, 5, 4, '{"coalesced":3}'), (0, 10, 90, 9, None))
    suspended = Suspended([(ranges, pl.DataFrame())])

    assert not suspended.has(0, 0, 0, 10)
