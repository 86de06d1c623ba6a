"""What an engine hands over of its stages: rule 15 of docs/internals/engine.md, on both engines."""

from __future__ import annotations

import asyncio
import enum
import gc
import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
from builders import packing, soak
from builders.forked_child import in_child
from builders.written_banks import FAKE, Written
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mstxkit.store.summaries import StageSummary

_US, _S = 1000, 1_000_000_000
_START = 1_000_000


def key_of(engine: Any, row: StageSummary) -> str:
    return str(engine.stage_keys()[row.stage - 1])


def taken(engine: Any, everything: bool = False) -> dict[tuple[int | None, str], StageSummary]:
    """What is handed over now, by step and stage; never twice the same."""
    rows = list(packing.summaries_of(engine.take_summaries(everything)))
    by_key = {(row.step, key_of(engine, row)): row for row in rows}
    assert len(by_key) == len(rows)
    return by_key


@pytest.fixture
def stages(engine: Any, recorded: Written) -> Written:
    """Recording, in no step, with nothing to hand over."""
    return recorded


def test_a_step_is_handed_over_once_it_is_over(engine: Any, stages: Written) -> None:
    engine.step(7)
    with engine.stage("a"):
        stages.tick(5 * _US)
    within = taken(engine)
    engine.step(8)
    over, after = taken(engine), taken(engine)

    assert within == after == {}
    (row,) = over.values()
    assert (row.step, key_of(engine, row)) == (7, "a")
    assert row[2:] == (1, _START, _START + 5 * _US, 5 * _US, None, 5 * _US, None, None, None)


def test_its_rows_are_those_of_the_form_in_python(engine: Any, stages: Written) -> None:
    engine.step(7)
    stages.tick(3)
    with engine.stage("a", tokens=1234, responses=5, longest_response=678):
        stages.tick(7_654_321_987)
    engine.step(8)

    stage = engine.stage_keys().index("a") + 1
    start = _START + 3
    row = StageSummary(7, stage, 1, start, start + 7_654_321_987, 7_654_321_987, None, 7_654_321_987, 1234, 5, 678)
    assert engine.take_summaries() == row.pack()


@pytest.mark.parametrize("ticks", [0, 999, 1000, 2**31 * 1000 - 1, 2**31 * 1000, 2**31 * 1000 + 5, 10**15, 2**60])
def test_durations_of_any_length_are_packed_as_in_python(engine: Any, stages: Written, ticks: int) -> None:
    engine.step(7)
    with engine.stage("a"):
        stages.tick(ticks)

    (row,) = taken(engine, everything=True).values()
    ideal = StageSummary(7, row.stage, 1, _START, _START + ticks, ticks, None, ticks)
    assert row == next(iter(packing.summaries_of(ideal.pack())))


def test_what_changes_later_is_handed_over_again_as_a_whole(engine: Any, stages: Written) -> None:
    engine.step(1)
    late = engine.stage("a")
    with engine.stage("a"):
        stages.tick(_US)
    late.__enter__()
    engine.step(2)
    before = taken(engine)
    stages.tick(4 * _US)
    late.__exit__(None, None, None)
    again = taken(engine)

    assert [row.total_ns for row in before.values()] == [_US]
    assert [(row.occurrences, row.total_ns, row.longest_ns) for row in again.values()] == [(2, 5 * _US, 4 * _US)]


def test_the_step_in_force_and_what_is_in_none_are_handed_over_at_the_end(engine: Any, stages: Written) -> None:
    with engine.at_step(3), engine.stage("of a step"):
        stages.tick(_US)
    engine.step(4)
    with engine.stage("in force"):
        stages.tick(_US)

    assert set(taken(engine)) == {(3, "of a step")}
    assert set(taken(engine, everything=True)) == {(4, "in force")}
    assert taken(engine, everything=True) == {}


def test_what_is_in_no_step_is_handed_over_each_minute(engine: Any, recorded: Written) -> None:
    from builders.fresh_engine import run_fresh

    rows = run_fresh(
        engine,
        """
        from builders import packing
        written, result = Written(engine), []
        for _ in range(3):
            with engine.stage("setup"):
                written.tick(1000)
            result.append([list(row[:3]) for row in packing.summaries_of(engine.take_summaries())])
            written.tick(31_000_000_000)
        """,
    )

    assert rows == [[], [], [[None, 1, 3]]]


def test_steps_of_at_step_are_over_when_nothing_has_changed_for_a_while(engine: Any, stages: Written) -> None:
    for step in (5, 6):
        with engine.at_step(step), engine.stage("a"):
            stages.tick(_US)
    at_once = taken(engine)
    stages.tick(2 * _S)
    later = taken(engine)
    stages.tick(60 * _S)

    assert (set(at_once), set(later), set(taken(engine))) == (set(), {(5, "a")}, {(6, "a")})


def test_a_step_that_was_left_by_going_back_is_handed_over_after_a_while(engine: Any, stages: Written) -> None:
    engine.step(900)
    with engine.stage("a"):
        stages.tick(_US)
    engine.step(0)
    soon = taken(engine)
    stages.tick(61 * _S)

    assert soon == {} and set(taken(engine)) == {(900, "a")}


def test_where_steps_overlap_each_has_a_union_of_its_own(engine: Any, stages: Written) -> None:
    """As async rollouts do, which never all stand still."""
    first, second = engine.stage("a"), engine.stage("a")
    with engine.at_step(1):
        first.__enter__()
    stages.tick(2 * _US)
    with engine.at_step(2):
        second.__enter__()
    stages.tick(3 * _US)
    first.__exit__(None, None, None)
    stages.tick(4 * _US)
    second.__exit__(None, None, None)

    rows = taken(engine, everything=True)
    assert rows[1, "a"].total_ns == 5 * _US
    # The second began inside of the first on this track.
    assert (2, "a") not in rows


def test_in_tasks_where_steps_overlap_each_has_a_union_of_its_own(engine: Any, stages: Written) -> None:
    async def generate(step: int, turns: int) -> None:
        with engine.at_step(step), engine.stage("a"):
            for _ in range(turns):
                await asyncio.sleep(0)
                stages.tick(_US)

    async def main() -> None:
        await asyncio.gather(generate(1, 2), generate(1, 3), generate(2, 4))

    asyncio.run(main())
    rows = taken(engine, everything=True)

    assert {key: (row.occurrences, row.total_ns // _US) for key, row in rows.items()} == {
        (1, "a"): (2, 7), (2, "a"): (1, 9)
    }  # fmt: skip


def test_what_is_inside_of_itself_counts_once(engine: Any, stages: Written) -> None:
    engine.step(1)
    with engine.stage("a"):
        stages.tick(_US)
        with engine.stage("b"), engine.stage("a"):
            stages.tick(_US)
        stages.tick(_US)
    rows = taken(engine, everything=True)

    assert (rows[1, "a"].occurrences, rows[1, "a"].total_ns, rows[1, "a"].longest_ns) == (1, 3 * _US, 3 * _US)


def test_threads_that_overlap_are_occurrences_of_one_union(engine: Any, stages: Written) -> None:
    def work() -> None:
        with engine.stage("a"):
            inside.wait()
            leave.wait()

    engine.step(1)
    inside, leave = threading.Barrier(4, timeout=30), threading.Barrier(4, timeout=30)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    inside.wait()
    stages.tick(2 * _US)
    leave.wait()
    for thread in threads:
        thread.join()
    (row,) = taken(engine, everything=True).values()

    assert (row.occurrences, row.total_ns, row.longest_ns, row.busy_ns) == (3, 2 * _US, 2 * _US, None)


def test_of_bodies_the_time_inside_is_told_apart(engine: Any, stages: Written) -> None:
    def body() -> Any:
        stages.tick(_US)
        yield
        stages.tick(_US)

    engine.step(1)
    for _ in engine.driven(engine.intern("body", "a"), body()):
        stages.tick(2 * _US)
    with engine.stage("a"):
        stages.tick(4 * _US)
    (row,) = taken(engine, everything=True).values()

    assert (row.occurrences, row.total_ns) == (2, 8 * _US)
    assert row.busy_ns is not None and abs(row.busy_ns - 6 * _US) <= 1


# Work


def work_of(engine: Any, stages: Written, *ranges: dict[str, Any], **more: Any) -> tuple[int | None, ...]:
    engine.step(1)
    for attributes in ranges:
        with engine.stage("a", **attributes) as opened:
            stages.tick(_US)
            opened.set(**more)
    (row,) = taken(engine, everything=True).values()
    return row.tokens, row.responses, row.longest_response


def test_work_adds_up_and_the_longest_stays(engine: Any, stages: Written) -> None:
    ranges = [{"tokens": 10, "responses": 2, "longest_response": 7}, {"tokens": 5, "longest_response": 9, "loss": 3}]

    assert work_of(engine, stages, *ranges) == (15, 2, 9)


def test_prompts_count_where_a_range_has_no_responses(engine: Any, stages: Written) -> None:
    assert work_of(engine, stages, {"prompts": 3}, {"prompts": 100, "responses": 4}) == (None, 7, None)


@pytest.mark.parametrize("is_said", [True, False])
def test_work_of_a_stage_inside_of_itself_counts_only_where_the_outer_one_does_not_say_it(
    engine: Any, stages: Written, is_said: bool
) -> None:
    """As the tables have it: the steps of an engine say again what the call around them says."""
    engine.step(1)
    for _ in range(2):
        with engine.stage("a", **({"tokens": 10, "longest_response": 4} if is_said else {})):
            for tokens in (3, 7):
                with engine.stage("a", tokens=tokens, prompts=1, longest_response=tokens):
                    stages.tick(_US)
    (row,) = taken(engine, everything=True).values()

    assert (row.tokens, row.responses, row.longest_response) == (20, 4, 4 if is_said else 7)


def test_what_is_said_at_the_end_counts_and_replaces(engine: Any, stages: Written) -> None:
    assert work_of(engine, stages, {"tokens": 3, "prompts": 1}, tokens=8, longest_response=2) == (8, 1, 2)


class Amount(enum.IntEnum):
    MANY = 5


@pytest.mark.parametrize("value", [True, 2.0, "7", None, -1, 1 << 64, Amount.MANY, [1], object()])
def test_only_whole_numbers_are_work(engine: Any, stages: Written, value: Any) -> None:
    assert work_of(engine, stages, {"tokens": value, "responses": value}) == (None, None, None)


def test_numbers_of_numpy_are_work(engine: Any, stages: Written) -> None:
    numpy = pytest.importorskip("numpy")

    assert work_of(engine, stages, {"tokens": numpy.int64(12), "prompts": numpy.int32(3)}) == (12, 3, None)


def test_work_saturates(engine: Any, stages: Written) -> None:
    most = {"tokens": (1 << 63) - 1, "responses": 1 << 40, "longest_response": 1 << 40}

    assert work_of(engine, stages, most, most, most) == (0xFFFFFFFE, 0xFFFE, 0xFFFFFFFE)


def test_attributes_by_a_dict_of_a_wrapper_are_work(engine: Any, stages: Written) -> None:
    engine.step(1)
    site = engine.intern("call", "a")
    many = {f"attribute{number}": number for number in range(12)}
    for attributes in ({"tokens": 3}, {**many, "tokens": 4}, {7: 1, "tokens": 5}):
        with engine.timed(site, None, attributes):
            stages.tick(_US)
    (row,) = taken(engine, everything=True).values()

    assert row.tokens == 12


def test_a_key_with_code_of_its_own_is_not_asked(engine: Any, stages: Written) -> None:
    class Key(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            raise AssertionError

    engine.step(1)
    with engine.timed(engine.intern("call", "a"), None, {Key("other"): 1, "tokens": 4}):
        stages.tick(_US)
    (row,) = taken(engine, everything=True).values()

    assert row.tokens == 4


def test_each_stage_in_which_others_are_waited_for_is_known_with_whom(engine: Any, stages: Written) -> None:
    """However that was said: at the begin, meanwhile, or by what a range was made of; "" for what is no text."""
    engine.step(1)
    with engine.stage("waits a", waits_for="rollout", tokens=4), engine.stage("waits b", tokens=1, waits_for=None):
        before = engine.stage_waits()
    with engine.stage("waits c") as opened:
        opened.set(waits_for="loader")
    with engine.timed(engine.intern("call", "waits d"), None, {"waits_for": True}), engine.mstx_range("r", waits_for=1):
        pass
    rows = taken(engine, everything=True)

    mine = {key: whom for key, whom in engine.stage_waits().items() if key.startswith("waits ")}
    assert not [key for key in before if key.startswith("waits ")]
    assert mine == {"waits a": "rollout", "waits c": "loader", "waits d": ""}
    assert (rows[1, "waits a"].occurrences, rows[1, "waits a"].tokens) == (1, 4)


# What is kept, and what is not


def test_more_steps_at_once_than_are_kept_lose_nothing(engine: Any, stages: Written) -> None:
    for step in range(500):
        with engine.at_step(step), engine.stage("a"), engine.stage("b"):
            stages.tick(_US)
    rows = taken(engine, everything=True)

    assert set(rows) == set(itertools.product(range(500), "ab"))
    assert all(row.total_ns == _US for row in rows.values()) and engine.counters()["summaries_lost"] == 0


def test_what_cannot_be_kept_is_counted(engine: Any, stages: Written) -> None:
    for step in range(5000):
        with engine.at_step(step), engine.stage("a"):
            stages.tick(1)
    rows = taken(engine, everything=True)

    assert len(rows) + engine.counters()["summaries_lost"] == 5000
    assert len(rows) == 4096 + 16 and (4999, "a") in rows


def test_where_something_of_every_kept_step_is_open_another_is_counted(engine: Any, stages: Written) -> None:
    async def hold(step: int) -> None:
        with engine.at_step(step), engine.stage("a"):
            await asyncio.sleep(0)
            stages.tick(_US)
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*map(hold, range(20)))

    asyncio.run(main())

    assert set(taken(engine, everything=True)) == {(step, "a") for step in range(16)}
    assert engine.counters()["summaries_lost"] == 4


def test_ten_thousand_steps_leave_nothing_behind(engine: Any, stages: Written) -> None:
    def steps(first: int) -> int:
        count = 0
        for step in range(first, first + 5000):
            engine.step(step)
            with engine.stage("a", tokens=3), engine.stage("b"):
                stages.tick(1)
            if step % 500 == 0:
                count += len(engine.take_summaries())
            if step % 1000 == 0:
                while engine.full_bank() >= 0:
                    engine.release_bank(engine.full_bank())
        return count

    def blocks() -> int:
        gc.collect()
        return sys.getallocatedblocks()

    steps(0)
    before = blocks()
    steps(5000)

    assert blocks() - before < 1000
    assert engine.counters()["summaries_lost"] == 0


def test_coalesced_calls_and_plain_ranges_are_no_stages(engine: Any, stages: Written) -> None:
    engine.step(1)
    site = engine.intern("plain")
    engine.limit(site, coalesce=True)
    try:
        for _ in range(3):
            with engine.timed(site), engine.mstx_range("other", tokens=3):
                stages.tick(1)
    finally:
        engine.limit(site)

    assert engine.take_summaries(True) == b""


def test_what_only_a_sink_hears_is_not_handed_over(engine: Any, stages: Written) -> None:
    engine.set_recording(False)
    engine.set_sink(0, lambda message, domain: 1, lambda token, domain: None)
    engine.step(1)
    with engine.stage("a"):
        stages.tick(_US)

    assert engine.take_summaries(True) == b""


def test_with_another_live_file_everything_begins_anew(engine: Any, stages: Written) -> None:
    engine.step(1)
    opened = engine.stage("a")
    with engine.stage("b"):
        opened.__enter__()
    engine.detach()
    Written(engine)
    opened.__exit__(None, None, None)
    with engine.stage("c"):
        pass

    assert set(taken(engine, everything=True)) == {(1, "c")}


def test_after_the_file_was_let_go_of_what_is_left_can_be_taken(engine: Any, stages: Written) -> None:
    engine.step(1)
    with engine.stage("a"):
        stages.tick(_US)
    engine.detach()

    assert set(taken(engine, everything=True)) == {(1, "a")}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_starts_with_nothing(engine: Any, stages: Written) -> None:
    engine.step(1)
    opened = engine.stage("a")
    with engine.stage("b"):
        stages.tick(_US)
    opened.__enter__()

    def child() -> bool:
        nothing = engine.take_summaries(True) == b"" and engine.counters()["summaries_lost"] == 0
        own = Written(engine)
        engine.step(1)
        with engine.stage("c"):
            own.tick(_US)
        opened.__exit__(None, None, None)
        return nothing and set(taken(engine, everything=True)) == {(1, "c")}

    assert in_child(child)
    opened.__exit__(None, None, None)
    assert set(taken(engine, everything=True)) == {(1, "a"), (1, "b")}


def test_times_are_on_the_monotonic_clock_whatever_the_recorder_counts(engine: Any) -> None:
    import time

    kinds = {1: True, 2: engine.NATIVE, 3: engine.NATIVE}
    for kind in kinds:
        try:
            engine.set_clock(kind)
        except ValueError:
            continue
        Written(engine)
        engine.step(1)
        before = time.monotonic_ns()
        with engine.stage("a"):
            time.sleep(0.005)
        after = time.monotonic_ns()
        (row,) = taken(engine, everything=True).values()
        engine.detach()

        # A clock that was looked at for milliseconds only is known to a thousandth or so.
        assert before - 100_000 <= row.entered_ns <= row.left_ns <= after + 100_000
        assert 4_500_000 <= row.total_ns <= after - before + 100_000


# Random programs against a simple model


class Stay(NamedTuple):
    """One occurrence."""

    step: int | None
    stage: str
    start: int
    is_inner: bool
    tokens: int | None


class Model:
    """What is to be handed over at the end, from the rules alone."""

    def __init__(self) -> None:
        self.ended: dict[tuple[int | None, str], list[tuple[Stay, int]]] = {}

    def end(self, stay: Stay, at: int) -> None:
        self.ended.setdefault((stay.step, stay.stage), []).append((stay, at))

    def expected(self) -> dict[tuple[int | None, str], tuple[Any, ...]]:
        summed = {}
        for key, stays in self.ended.items():
            outer = [(stay.start, end) for stay, end in stays if not stay.is_inner]
            if outer:
                said = [stay for stay, _ in stays if stay.tokens is not None]
                tokens = [stay.tokens for stay in [s for s in said if not s.is_inner] or said]
                left = max(end for _, end in outer)
                summed[key] = (
                    len(outer), min(start for start, _ in outer), left,
                    union([(stay.start, end) for stay, end in stays]), max(end - start for start, end in outer),
                    sum(tokens) if tokens else None,
                )  # fmt: skip
        return summed


def union(intervals: list[tuple[int, int]]) -> int:
    total, until = 0, -1
    for start, end in sorted(intervals):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


ACTIONS = st.one_of(
    st.tuples(st.just("begin"), st.sampled_from("ab"), st.none() | st.integers(0, 9), st.none() | st.integers(0, 99)),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("tick"), st.integers(1, 50)),
    st.tuples(st.just("step"), st.integers(0, 9)),
    st.tuples(st.just("take")),
)


@settings(max_examples=soak.rounds(2000, 60), suppress_health_check=list(HealthCheck))
@example([("begin", "a", 0, None), ("begin", "a", 0, 7), ("end", 0), ("take",), ("tick", 5), ("end", 0)])
@example([("begin", "a", None, 3), ("tick", 5), ("take",), ("end", 0), ("step", 3), ("take",)])
@given(st.lists(ACTIONS, max_size=40))
def test_whatever_a_program_does_the_last_of_each_row_says_it(engine: Any, actions: list[tuple[Any, ...]]) -> None:
    """In a thread of its own: stages that end in any order leave one behind there."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(_check_last_of_each_row, engine, actions).result()


def _check_last_of_each_row(engine: Any, actions: list[tuple[Any, ...]]) -> None:
    engine.set_clock(FAKE)
    written, model, last = Written(engine), Model(), {}
    try:
        now, step, opened = _START, engine.process_step(), []
        for kind, *arguments in actions:
            if kind == "begin":
                stage, at, tokens = arguments
                work = {} if tokens is None else {"tokens": tokens}
                stay = Stay(step if at is None else at, stage, now, any(o.stage == stage for o, _ in opened), tokens)
                made = engine.stage(stage, **work)
                with engine.at_step(at) if at is not None else engine.at_step(0 if step is None else step):
                    if at is None and step is None:
                        stay = stay._replace(step=0)
                    made.__enter__()
                opened.append((stay, made))
            elif kind == "end" and opened:
                stay, made = opened.pop(arguments[0] % len(opened))
                made.__exit__(None, None, None)
                model.end(stay, now)
            elif kind == "tick":
                now += arguments[0] * _US
                written.tick(arguments[0] * _US)
            elif kind == "step":
                step = engine.step(arguments[0])
            elif kind == "take":
                last.update(taken(engine))
        while opened:
            stay, made = opened.pop()
            made.__exit__(None, None, None)
            model.end(stay, now)
        last.update(taken(engine, everything=True))

        assert engine.counters()["summaries_lost"] == 0
        assert {
            key: (r.occurrences, r.entered_ns, r.left_ns, r.total_ns, r.longest_ns, r.tokens) for key, r in last.items()
        } == model.expected()
    finally:
        engine.set_recording(False)
        engine.detach()
