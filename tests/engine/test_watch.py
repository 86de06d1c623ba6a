"""The hooks of `set_watch`: of which ranges and steps they are told, and while what is on, on both engines."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from builders.threads import elsewhere
from builders.watcher import Watcher, marked, once
from builders.written_banks import FAKE, Written

from mstxkit import faults

# ---- which ranges ----


def test_stages_are_told_and_other_ranges_are_not(engine: Any, recorded: Written, watcher: Watcher) -> None:
    with engine.stage("s"), engine.mstx_range("plain"), engine.mstx_range("named", stage="t"):
        pass

    assert watcher.told == [
        ("entered", "s", False), ("entered", "named", False), ("left", "named", False), ("left", "s", False)
    ]  # fmt: skip
    assert recorded.names == ["named", "plain", "s"]


def test_a_marked_site_is_told_by_name_and_by_a_wrapper(engine: Any, recorded: Written, watcher: Watcher) -> None:
    site = marked(engine, "boundary")
    for _ in range(3):
        with engine.mstx_range("boundary"):
            pass
        once(engine, site)

    assert watcher.entries == [("boundary", False)] * 6
    assert watcher.ends == [("boundary", False)] * 6
    assert recorded.names == ["boundary"] * 6


def test_the_hook_gets_the_very_site(engine: Any) -> None:
    site = marked(engine, "the very site")
    got: list[Any] = []
    engine.set_watch(lambda *told: got.append(told), lambda *told: got.append(told), None)
    engine.watch(True)
    once(engine, site)
    engine.watch(False)
    engine.set_watch(None, None, None)

    assert got == [(site, False), (site, False)]
    assert all(type(flag) is bool for _, flag in got)


def test_a_site_in_use_is_told_from_the_call_after_it_was_marked(
    engine: Any, recorded: Written, watcher: Watcher
) -> None:
    """Its positions and its range objects are warm by then."""
    for _ in range(20):
        with engine.mstx_range("warm"):
            pass
    kept = engine.mstx_range("warm")
    with kept:
        before = list(watcher.told)
        engine.watch_site(engine.intern("warm"))
    with kept:
        pass

    assert before == []
    assert watcher.told == [("entered", "warm", False), ("left", "warm", False)]
    assert recorded.names == ["warm"] * 22


def test_what_is_no_site_cannot_be_marked(engine: Any) -> None:
    with pytest.raises(TypeError, match="a Site was expected"):
        engine.watch_site("x")


def test_to_mark_a_site_twice_or_one_with_a_stage_changes_nothing(engine: Any, watcher: Watcher) -> None:
    once(engine, marked(engine, "marked twice"))
    once(engine, marked(engine, "marked twice"))
    with_stage = engine.intern("own", "stage of its own")
    engine.watch_site(with_stage)
    once(engine, with_stage)

    assert [name for name, _ in watcher.entries] == ["marked twice", "marked twice", "own"]


# ---- when it watches ----


def test_hooks_alone_switch_nothing_on(engine: Any, watcher: Watcher) -> None:
    watcher.set(on=False)
    off = (engine.recording(), engine.is_on(engine.intern("x")))
    with engine.stage("s"):
        pass

    assert off == (False, False)
    assert watcher.told == []


def test_while_it_watches_it_is_on_and_nothing_is_written(engine: Any, watcher: Watcher) -> None:
    on = (engine.recording(), engine.is_on(engine.intern("x")))
    with engine.stage("only watched"), engine.mstx_range("plain", key=1):
        engine.mark("m")
        inside = engine.current_stage()

    assert on == (True, True)
    assert (inside, engine.current_stage()) == ("only watched", None)
    assert watcher.entries == [("only watched", False)]
    assert watcher.ends == [("only watched", False)]


def test_what_was_told_of_its_begin_is_told_of_its_end_whatever_is_on_by_then(engine: Any, recorded: Written) -> None:
    watcher = Watcher(engine).set()
    with engine.stage("told"):
        engine.watch(False)
        with engine.stage("not told"):
            pass
        engine.set_recording(False)
        engine.detach()
    watcher.clear()

    assert watcher.told == [("entered", "told", False), ("left", "told", False)]


def test_other_ranges_are_recorded_alike_while_it_watches(engine: Any, recorded: Written, watcher: Watcher) -> None:
    for turn in range(4):
        engine.watch(turn % 2 == 1)
        with engine.mstx_range("outer"), engine.mstx_range("inner", key=turn):
            recorded.tick(3)

    assert recorded.names == ["inner", "outer"] * 4
    assert [(found.depth, found.duration) for found in recorded.ranges] == [(1, 3), (0, 3)] * 4
    assert watcher.told == []


# ---- steps ----


def test_each_step_is_told_watching_or_not(engine: Any, watcher: Watcher) -> None:
    engine.step(4)
    engine.watch(False)
    after = engine.step()
    with engine.at_step(9):
        pass

    assert watcher.told == [4, 5]
    assert after == 5


def test_a_step_that_is_none_is_not_told(engine: Any, watcher: Watcher) -> None:
    engine.step(4)
    in_force = [engine.step(bad) for bad in (-1, "x", 1 << 32)]

    assert watcher.told == [4]
    assert in_force == [4, 4, 4]


def test_the_hook_finds_the_new_step_in_force_and_may_set_another(engine: Any) -> None:
    found: list[Any] = []

    def stepped(step: int) -> None:
        found.append((step, engine.current_step()))
        if step < 7:
            engine.step(7)

    engine.set_watch(None, None, stepped)
    given = engine.step(5)
    engine.set_watch(None, None, None)

    assert found == [(5, 5), (7, 7)]
    assert (given, engine.current_step()) == (5, 7)


def test_a_step_that_is_said_again_is_told_again_only_while_watched_or_by_another_thread(engine: Any) -> None:
    """Patched calls say theirs at each call."""
    told: list[int] = []
    engine.set_watch(None, None, told.append)
    for step in (3, 3, 4, 3):
        engine.step(step)
    before = list(told)
    elsewhere(engine.step, 3)
    engine.watch(True)
    engine.step(3)
    engine.step(3)
    engine.watch(False)
    engine.set_watch(None, None, told.append)
    engine.step(3)
    engine.set_watch(None, None, None)

    assert before == [3, 4, 3]
    assert told[3:] == [3, 3, 3, 3]


# ---- which hooks ----


def test_without_a_hook_for_the_begin_the_end_is_told_nobody(engine: Any) -> None:
    watcher = Watcher(engine)
    engine.set_watch(None, watcher.left, None)
    engine.watch(True)
    with engine.stage("s"):
        pass
    watcher.clear()

    assert watcher.told == []


def test_without_a_hook_for_the_end_the_begin_is_told(engine: Any) -> None:
    watcher = Watcher(engine)
    engine.set_watch(watcher.entered, None, None)
    engine.watch(True)
    with engine.stage("s"):
        engine.step(1)
    watcher.clear()

    assert watcher.told == [("entered", "s", False)]


def test_the_end_is_told_to_the_hook_in_force_by_then(engine: Any, recorded: Written) -> None:
    first, second = Watcher(engine).set(), Watcher(engine)
    with engine.stage("a"):
        with engine.stage("b"):
            second.set()
        first.clear()
        with engine.stage("c"):
            pass

    assert first.told == [("entered", "a", False), ("entered", "b", False)]
    assert second.told == [("left", "b", False)]


def test_a_hook_may_take_itself_away(engine: Any, recorded: Written, watcher: Watcher) -> None:
    """The engine holds it until it has returned."""
    engine.set_watch(lambda site, may_move: engine.set_watch(None, None, None), watcher.left, None)
    with engine.stage("s"):
        pass

    assert watcher.told == []
    assert recorded.names == ["s"]


def test_the_engine_holds_no_hook_that_was_replaced(engine: Any, watcher: Watcher) -> None:
    before = sys.getrefcount(watcher)
    watcher.clear()

    assert sys.getrefcount(watcher) == before - 3


# ---- stages seen ----


def test_stages_seen_are_those_begun_while_something_was_on_in_the_order_of_the_first(engine: Any) -> None:
    known = engine.stages_seen()
    with engine.stage("begun while all was off"):
        pass
    engine.watch(True)
    engine.intern("interned", "only interned")
    with engine.stage("seen second"), engine.mstx_range("named", stage="seen third"):
        pass
    engine.watch(False)
    engine.set_clock(FAKE)
    Written(engine)
    with engine.stage("seen second"), engine.stage("seen last"):
        pass
    engine.detach()

    seen = engine.stages_seen()
    assert seen[: len(known)] == known
    assert seen[len(known) :] == ["seen second", "seen third", "seen last"]


def test_what_stages_seen_gave_is_the_callers(engine: Any, recorded: Written) -> None:
    with engine.stage("seen"):
        engine.stages_seen().clear()

    assert "seen" in engine.stages_seen()


# ---- the first of all ----


@pytest.mark.parametrize("first", ["range", "mark", "wrapper"])
def test_who_waits_for_the_first_range_or_mark_is_called_once_and_before_it(
    engine: Any, recorded: Written, first: str
) -> None:
    called: list[bool] = []
    site = engine.intern("wrapper")
    engine.set_recording(False)
    engine.await_first(lambda: (called.append(engine.recording()), engine.set_recording(True)))
    for _ in range(2):
        if first == "range":
            with engine.mstx_range("range"):
                pass
        elif first == "mark":
            engine.mark("mark")
        else:
            once(engine, site)

    assert called == [True], "wrappers ask whether anything is on, and must go on"
    assert [row.name for row in (*recorded.ranges, *recorded.marks)] == [first] * 2


def test_who_waits_no_more_is_not_called(engine: Any) -> None:
    called: list[bool] = []
    engine.await_first(lambda: called.append(True))
    engine.await_first(None)
    with engine.mstx_range("range"):
        pass

    assert called == [] and not engine.recording()


@pytest.mark.parametrize("first", ["range", "mark"])
def test_who_waits_and_says_true_is_called_by_the_one_after_as_well(engine: Any, recorded: Written, first: str) -> None:
    answers = [True, True, None]
    engine.await_first(lambda: answers.pop(0))
    for _ in range(4):
        engine.mark("mark") if first == "mark" else once(engine, engine.intern("range"))

    assert answers == []
    assert [row.name for row in (*recorded.ranges, *recorded.marks)] == [first] * 4


def test_who_waits_and_fails_costs_a_fault_and_is_not_called_again(engine: Any) -> None:
    engine.await_first(lambda: 1 / 0)
    for _ in range(2):
        with engine.mstx_range("range"):
            pass

    assert faults.counts == {"watch.first": 1} and not engine.recording()
