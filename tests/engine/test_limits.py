"""Limited sites on both engines: what is over a limit is added up, not recorded; and what each site costs."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, Callable, Iterator

import pytest
from builders.forked_child import in_child
from builders.threads import elsewhere
from builders.written_banks import FAKE, Written, WrittenRange

SECOND = 1_000_000_000


@pytest.fixture
def site(engine: Any) -> Iterator[Any]:
    """A site that is coalesced altogether; without limits again afterwards."""
    found = engine.intern("limited")
    engine.limit(found, coalesce=True)
    yield found
    engine.limit(found)
    engine.throttle(found, False)


def call(engine: Any, written: Written, site: Any, ticks: int = 1) -> None:
    with engine.timed(site):
        written.tick(ticks)


def flushed(engine: Any, written: Written, name: str = "limited") -> list[WrittenRange]:
    """The records of that name, once nothing is pending."""
    engine.flush_coalesced()
    return [found for found in written.ranges if found.name == name]


def summed(found: WrittenRange) -> tuple[Any, ...]:
    """(calls, total, longest, busy) of a record of coalesced calls."""
    return (*(found.attributes[key] for key in ("coalesced", "total_ns", "max_ns")), found.busy)


def test_calls_become_one_record_from_the_first_start_to_the_last_end(
    engine: Any, recorded: Written, site: Any
) -> None:
    engine.step(4)
    with engine.stage("around"):
        recorded.tick(10)
        for ticks in (5, 20, 1):
            call(engine, recorded, site, ticks)
            recorded.tick(100)
        before = len(recorded.ranges)
        (found,) = flushed(engine, recorded)

    assert before == 0
    assert (found.start, found.duration) == (1_000_010, 226)
    assert summed(found) == (3, 26, 20, 26)
    assert (found.stage, found.step, found.depth, found.error) == ("around", 4, 1, False)


def test_the_header_counts_them_at_once(engine: Any, recorded: Written, site: Any) -> None:
    for _ in range(5):
        call(engine, recorded, site)

    engine.flush_coalesced()

    assert engine.counters()["coalesced"] == 5
    assert engine.counters()["dropped"] == 0


def test_no_tool_is_told_and_no_slot_taken(engine: Any, recorded: Written, site: Any) -> None:
    told: list[str] = []
    engine.set_sink(0, lambda message, domain: told.append(message) or 1, lambda token, domain: None)

    with engine.timed(site), engine.mstx_range("inside"):
        seen = [found.name for found in recorded.open]

    assert (told, seen) == (["inside"], ["inside"])


def test_while_only_a_tool_listens_it_is_told_nothing_either(engine: Any, site: Any) -> None:
    told: list[str] = []
    engine.set_sink(0, lambda message, domain: told.append(message) or 1, lambda token, domain: None)

    with engine.timed(site):
        pass

    assert told == []


def test_what_is_inside_is_recorded_and_knows_its_depth_and_stage(engine: Any, recorded: Written, site: Any) -> None:
    with engine.stage("around"):
        for _ in range(3):
            with engine.timed(site), engine.mstx_range("inside"):
                recorded.tick(1)

    inside = [(found.depth, found.stage) for found in recorded.ranges if found.name == "inside"]
    assert inside == [(2, "around")] * 3
    assert [summed(found) for found in flushed(engine, recorded)] == [(3, 3, 1, 3)]


@pytest.mark.parametrize("quick", [True, False])
def test_a_record_spans_a_second_at_most(engine: Any, recorded: Written, site: Any, quick: bool) -> None:
    with engine.mstx_range("around"):
        for _ in range(25):
            with engine.timed(site, None, None if quick else {"a": 1}):
                recorded.tick(SECOND // 10)

    found = flushed(engine, recorded)
    assert [summed(one)[0] for one in found] == [10, 10, 5]
    assert all(one.duration <= SECOND for one in found)


def test_one_call_longer_than_that_has_a_record_of_its_own(engine: Any, recorded: Written, site: Any) -> None:
    for ticks in (5, 3 * SECOND, 7):
        call(engine, recorded, site, ticks)

    assert [summed(one) for one in flushed(engine, recorded)] == [
        (1, 5, 5, 5), (1, 3 * SECOND, 3 * SECOND, 3 * SECOND), (1, 7, 7, 7),
    ]  # fmt: skip


def test_each_stage_step_and_track_has_its_own(engine: Any, recorded: Written, site: Any) -> None:
    engine.step(1)
    call(engine, recorded, site)
    with engine.stage("s"):
        call(engine, recorded, site)
    engine.step(2)
    call(engine, recorded, site)
    elsewhere(call, engine, recorded, site)

    found = flushed(engine, recorded)
    assert sorted((one.step, str(one.stage)) for one in found) == [(1, "None"), (1, "s"), (2, "None"), (2, "None")]
    assert len({one.track for one in found if one.step == 2}) == 2
    assert [summed(one)[0] for one in found] == [1, 1, 1, 1]


def test_calls_inside_each_other_count_but_their_time_counts_once(engine: Any, recorded: Written, site: Any) -> None:
    with engine.timed(site):
        recorded.tick(10)
        with engine.mstx_range("between"):
            call(engine, recorded, site, 5)
            call(engine, recorded, site, 5)

    (found,) = flushed(engine, recorded)
    assert summed(found) == (3, 20, 20, 20)
    assert found.depth == 0


def test_with_a_depth_limit_the_outer_calls_are_records_and_the_deeper_only_counted(
    engine: Any, recorded: Written, site: Any
) -> None:
    engine.limit(site, max_depth=2)

    def recurse(depth: int) -> None:
        with engine.timed(site):
            recorded.tick(1)
            if depth:
                recurse(depth - 1)

    for _ in range(2):
        recurse(4)

    found = flushed(engine, recorded)
    assert [(one.depth, one.duration) for one in found if not one.attributes] == [(1, 4), (0, 5)] * 2
    assert [summed(one)[:3] for one in found if one.attributes] == [(6, 0, 0)]


def test_with_a_rate_limit_so_many_a_second_are_records(engine: Any, recorded: Written, site: Any) -> None:
    engine.limit(site, max_per_s=3)
    for _ in range(2):
        for _ in range(10):
            call(engine, recorded, site)
        recorded.tick(SECOND)

    found = flushed(engine, recorded)
    assert [one.duration for one in found if not one.attributes] == [1] * 6
    assert [summed(one) for one in found if one.attributes] == [(7, 7, 1, 7)] * 2


def test_a_rate_limit_of_none_coalesces_all(engine: Any, recorded: Written, site: Any) -> None:
    engine.limit(site, max_per_s=0)

    call(engine, recorded, site)

    assert [summed(one)[0] for one in flushed(engine, recorded)] == [1]


def test_an_error_in_one_call_marks_the_record(engine: Any, recorded: Written, site: Any) -> None:
    call(engine, recorded, site)
    with pytest.raises(KeyError), engine.timed(site):
        raise KeyError
    call(engine, recorded, site)
    recorded.tick(2 * SECOND)
    call(engine, recorded, site)

    assert [(summed(one)[0], one.error) for one in flushed(engine, recorded)] == [(3, True), (1, False)]


def test_a_driven_body_adds_the_time_really_spent_inside(engine: Any, recorded: Written, site: Any) -> None:
    def body() -> Iterator[int]:
        recorded.tick(5)
        yield 1
        recorded.tick(6)

    for _ in engine.driven(site, body()):
        recorded.tick(100)
        with engine.mstx_range("outside"):
            pass

    (found,) = flushed(engine, recorded)
    assert (found.duration, summed(found)) == (111, (1, 11, 11, 11))
    assert recorded.one("outside").depth == 0


def test_tasks_that_wait_in_the_same_site_are_not_inside_each_other(engine: Any, recorded: Written, site: Any) -> None:
    async def waits() -> None:
        await asyncio.sleep(0)
        recorded.tick(3)

    async def main() -> None:
        with engine.mstx_range("main"):
            await asyncio.gather(*[engine.driven(site, waits()) for _ in range(4)])

    asyncio.run(main())

    found = flushed(engine, recorded)
    assert sum(summed(one)[0] for one in found) == 4
    assert sum(summed(one)[1] for one in found) == 12


def test_the_pieces_of_a_span_are_one_call(engine: Any, recorded: Written, site: Any) -> None:
    async def piece() -> None:
        recorded.tick(2)

    async def main() -> None:
        span = engine.opened(site)
        await span.drive(piece())
        await span.drive(piece())
        span.close(True)

    asyncio.run(main())

    (found,) = flushed(engine, recorded)
    assert (summed(found), found.error) == ((1, 4, 4, 4), True)


def test_a_stage_is_never_limited(engine: Any, recorded: Written) -> None:
    own = engine.intern("staged", "staged")
    engine.limit(own, coalesce=True)
    engine.throttle(own, True)

    call(engine, recorded, own)

    assert [found.attributes for found in recorded.ranges] == [{}]


def test_throttled_it_is_coalesced_whatever_its_limits_say(engine: Any, recorded: Written, site: Any) -> None:
    engine.limit(site, max_per_s=100)
    engine.throttle(site, True)
    call(engine, recorded, site)
    engine.throttle(site, False)
    call(engine, recorded, site)

    found = flushed(engine, recorded)
    assert [(one.attributes.get("coalesced"), one.duration) for one in found] == [(None, 1), (1, 1)]


def test_a_call_ends_as_it_began(engine: Any, recorded: Written, site: Any) -> None:
    engine.limit(site)
    whole, coalesced = engine.timed(site), engine.timed(site)
    whole.__enter__()
    engine.limit(site, coalesce=True)
    coalesced.__enter__()
    recorded.tick(1)
    engine.limit(site)
    coalesced.__exit__(None, None, None)
    whole.__exit__(None, None, None)

    found = flushed(engine, recorded)
    assert [one.attributes.get("coalesced") for one in found] == [None, 1]
    assert engine.counters()["open"] == 0


def test_one_made_by_name_with_attributes_and_entered_again_is_coalesced_too(
    engine: Any, recorded: Written, site: Any
) -> None:
    held = engine.mstx_range("limited", tokens=3)
    for _ in range(2):
        with held as entered, held:
            entered.set(more=1)
            recorded.tick(1)

    (found,) = flushed(engine, recorded)
    assert summed(found) == (4, 2, 1, 2)
    assert set(found.attributes) == {"coalesced", "total_ns", "max_ns"}
    assert engine.counters()["attributes_lost"] == 0


def test_one_that_is_thrown_away_while_open_is_ended(engine: Any, recorded: Written, site: Any) -> None:
    lost = engine.timed(site, None, {"a": 1})
    lost.__enter__()
    del lost
    gc.collect()  # on the twin its functions refer to it

    (found,) = flushed(engine, recorded)
    assert (summed(found)[0], found.error) == (1, True)


def test_it_may_end_on_another_thread(engine: Any, recorded: Written, site: Any) -> None:
    entered = engine.timed(site)
    entered.__enter__()
    recorded.tick(3)
    elsewhere(entered.__exit__, None, None, None)
    with engine.mstx_range("after"):
        pass

    (found,) = flushed(engine, recorded)
    assert (summed(found), recorded.one("after").depth) == ((1, 3, 3, 3), 0)
    assert found.track == recorded.one("after").track


def test_what_is_pending_outlasts_a_rotation_with_its_times(engine: Any, recorded: Written, site: Any) -> None:
    call(engine, recorded, site, 7)
    with engine.mstx_range("filler"):
        pass
    recorded.tick(SECOND // 2)
    assert engine.rotate()

    (found,) = flushed(engine, recorded)
    assert (found.start, found.duration, summed(found)) == (1_000_000, 7, (1, 7, 7, 7))
    assert len(recorded.banks) == 2


def test_what_is_pending_goes_with_its_file(engine: Any, recorded: Written, site: Any) -> None:
    call(engine, recorded, site)
    entered = engine.timed(site)
    entered.__enter__()
    engine.detach()
    another = Written(engine)
    entered.__exit__(None, None, None)
    call(engine, another, site)

    (found,) = flushed(engine, another)
    assert summed(found)[0] == engine.counters()["coalesced"] == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_nothing_pending(engine: Any, recorded: Written, site: Any) -> None:
    call(engine, recorded, site)

    def child() -> bool:
        before = bytes(recorded.view)
        engine.flush_coalesced()
        own = Written(engine)
        call(engine, own, site)
        return bytes(recorded.view) == before and [summed(found)[0] for found in flushed(engine, own)] == [1]

    assert in_child(child)
    assert [summed(found)[0] for found in flushed(engine, recorded)] == [1]


def test_with_no_free_bank_the_record_is_dropped_and_counted(engine: Any, small: Written, site: Any) -> None:
    for _ in range(600):
        with engine.mstx_range("filler"):
            pass
    dropped = engine.counters()["dropped"]
    call(engine, small, site)

    assert flushed(engine, small) == []
    assert engine.counters()["dropped"] == dropped + 1


def test_more_windows_than_are_kept_are_written_before_they_are_forgotten(
    engine: Any, recorded: Written, site: Any
) -> None:
    for number in range(5000):
        engine.step(number)
        call(engine, recorded, site)

    assert len(flushed(engine, recorded)) == 5000


def test_flushing_again_and_again_writes_nothing_twice(engine: Any, recorded: Written, site: Any) -> None:
    found = []
    with engine.mstx_range("around"):
        for _ in range(4):
            call(engine, recorded, site)
            found.append(len(flushed(engine, recorded)))
            found.append(len(flushed(engine, recorded)))
            found.append(len(flushed(engine, recorded)))

    assert found == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]


@pytest.mark.parametrize("limits", [{"max_depth": -1}, {"max_per_s": 1.5}, {"max_per_s": "3"}, {"max_depth": 1 << 40}])
def test_a_limit_that_is_none_is_refused(engine: Any, site: Any, limits: dict[str, Any]) -> None:
    (name,) = limits

    with pytest.raises(ValueError, match=f"{name}=.*an int from 0 is needed"):
        engine.limit(site, **limits)


@pytest.mark.parametrize("act", ["limit", "throttle", "add_cost"])
def test_only_a_site_is_limited(engine: Any, act: str) -> None:
    with pytest.raises(TypeError, match="a Site was expected"):
        getattr(engine, act)(*{"limit": ("x",), "throttle": ("x", True), "add_cost": ("x", 1.0)}[act])


def cost_of(engine: Any, site: Any) -> tuple[int, int, int]:
    """(calls, ns, coalesced) of a site so far."""
    ((_, *found),) = [cost for cost in engine.site_costs() if cost[0] is site] or [(site, 0, 0, 0)]
    return tuple(found)


def costing(written: Written, ticks: int) -> Callable[..., int]:
    """What a tool does that needs so many ticks."""

    def act(*told: object) -> int:
        written.tick(ticks)
        return 1

    return act


def test_calls_are_counted_recorded_or_not(engine: Any, recorded: Written) -> None:
    mine = engine.intern("counted")
    before = cost_of(engine, mine)
    for _ in range(300):
        call(engine, recorded, mine)
    engine.throttle(mine, True)
    for _ in range(500):
        call(engine, recorded, mine)
    engine.throttle(mine, False)
    for _ in range(200):
        with engine.timed(mine, None, {"a": 1}):
            pass
    after = cost_of(engine, mine)

    assert (after[0] - before[0], after[2] - before[2]) == (1000, 500)


@pytest.mark.parametrize("ticks", [100, 50_000])
def test_the_cost_is_what_begin_and_end_take_with_their_tools(engine: Any, recorded: Written, ticks: int) -> None:
    mine = engine.intern(f"costing {ticks}")
    engine.set_sink(0, costing(recorded, ticks), costing(recorded, ticks))
    before = cost_of(engine, mine)
    for _ in range(1000):
        call(engine, recorded, mine, 7)
    calls, spent, _ = (a - b for a, b in zip(cost_of(engine, mine), before))

    assert calls == 1000
    assert 0.9 < spent / (1000 * 2 * ticks) < 1.1


def test_a_single_dear_call_is_not_taken_for_the_usual(engine: Any, recorded: Written) -> None:
    mine, delay = engine.intern("once dear"), [100] * 64 + [10 * SECOND] + [100] * 935
    engine.set_sink(0, lambda message, domain: recorded.tick(delay.pop(0)) or 1, lambda token, domain: None)
    before = cost_of(engine, mine)
    for _ in range(1000):
        call(engine, recorded, mine)
    spent = cost_of(engine, mine)[1] - before[1]

    assert spent < 11 * SECOND


def test_coalesced_calls_cost_no_more_than_themselves(engine: Any, recorded: Written) -> None:
    mine = engine.intern("was dear")
    engine.set_sink(0, costing(recorded, 1000), costing(recorded, 1000))
    for _ in range(100):
        call(engine, recorded, mine)
    engine.throttle(mine, True)
    before = cost_of(engine, mine)
    for _ in range(1000):
        call(engine, recorded, mine)
    spent = cost_of(engine, mine)[1] - before[1]
    engine.throttle(mine, False)

    assert spent < 100_000


def test_what_others_did_for_a_site_can_be_added(engine: Any, recorded: Written) -> None:
    mine = engine.intern("asked for attributes")
    call(engine, recorded, mine)
    before = cost_of(engine, mine)[1]
    engine.add_cost(mine, 12345.0)

    assert cost_of(engine, mine)[1] - before == 12345


def test_costs_on_a_real_clock_are_above_none(engine: Any) -> None:
    mine = engine.intern("real")
    written = Written(engine)
    assert engine.clock_kind() != FAKE
    for _ in range(1000):
        with engine.timed(mine):
            pass
    calls, spent, _ = cost_of(engine, mine)
    engine.detach()

    assert len(written.names) == 1000 == calls
    assert spent > 0
