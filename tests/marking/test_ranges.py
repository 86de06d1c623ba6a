"""Ranges, stages, marks and steps as a user writes them, each read back from what was recorded."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import threading
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import Any, Callable

import pytest

from mstxkit import at_step, current_stage, current_step, mark, mstx_range, stage, step
from mstxkit.testing import captured


def one(got: Any, name: str) -> Any:
    """The only range of that name."""
    (found,) = [r for r in got.ranges if r.name == name]
    return found


def encloses(outer: Any, inner: Any) -> bool:
    return outer.start_ns <= inner.start_ns and inner.start_ns + inner.duration_ns <= outer.start_ns + outer.duration_ns


def test_a_range_inside_another_is_one_deeper_on_the_same_track() -> None:
    with captured() as got:
        with mstx_range("outer"), mstx_range("inner"):
            pass

    outer, inner = one(got, "outer"), one(got, "inner")
    assert (outer.depth, inner.depth) == (0, 1)
    assert outer.track == inner.track
    assert encloses(outer, inner)


def test_recursion_gives_one_range_per_call_each_deeper() -> None:
    def countdown(n: int) -> None:
        with mstx_range("countdown", left=n):
            if n:
                countdown(n - 1)

    with captured() as got:
        countdown(3)

    assert sorted((r.depth, r.attributes["left"]) for r in got.ranges) == [(0, 3), (1, 2), (2, 1), (3, 0)]


def test_threads_have_tracks_of_their_own() -> None:
    both_inside = threading.Barrier(2, timeout=10)

    def work() -> None:
        with mstx_range("work"):
            both_inside.wait()

    with captured() as got:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    first, second = got.ranges
    assert first.track != second.track
    assert first.depth == second.depth == 0


def test_interleaved_tasks_keep_each_their_own_range() -> None:
    async def hold(name: str, mine: asyncio.Event, other: asyncio.Event) -> None:
        with mstx_range(name):
            mine.set()
            await other.wait()
            await asyncio.sleep(0)

    async def main() -> None:
        a, b = asyncio.Event(), asyncio.Event()
        await asyncio.gather(hold("a", a, b), hold("b", b, a))

    with captured() as got:
        asyncio.run(main())

    a, b = one(got, "a"), one(got, "b")
    assert a.track != b.track
    assert a.depth == b.depth == 0
    assert a.start_ns < b.start_ns < a.start_ns + a.duration_ns


def test_a_body_that_raises_ends_its_range_with_error_and_keeps_its_exception() -> None:
    """torch_npu's `mstx_range` and verl's `marked_timer` leave such a range open."""
    with captured() as got:
        with mstx_range("before"):
            pass
        with pytest.raises(ZeroDivisionError) as raised, mstx_range("step"):
            raise ZeroDivisionError("mine")
        with mstx_range("after"):
            pass

    assert one(got, "step").error
    assert str(raised.value) == "mine"
    assert raised.value.__context__ is None
    assert not one(got, "before").error
    assert (one(got, "after").error, one(got, "after").depth) == (False, 0)


def test_five_calls_after_one_that_raised_are_all_recorded() -> None:
    """viztracer's `ignore_function` stays paused after a body that raises."""
    with captured() as got:
        with suppress(ValueError), mstx_range("raises"):
            raise ValueError
        for _ in range(5):
            with mstx_range("later"):
                pass

    assert len([r for r in got.ranges if r.name == "later"]) == 5


def test_a_cancelled_task_ends_its_range_with_error() -> None:
    async def main() -> None:
        inside = asyncio.Event()

        async def wait_for_ever() -> None:
            async with mstx_range("cancelled"):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(wait_for_ever())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with captured() as got:
        asyncio.run(main())

    assert one(got, "cancelled").error


def test_a_generator_closed_inside_a_with_ends_the_range_without_error() -> None:
    def numbers() -> Any:
        with mstx_range("numbers"):
            yield 1
            yield 2

    with captured() as got:
        running = numbers()
        next(running)
        running.close()

    assert not one(got, "numbers").error


def test_exit_stacks_end_ranges_in_reverse_order() -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            stack.enter_context(mstx_range("async outer"))
            await stack.enter_async_context(mstx_range("async inner"))

    with captured() as got:
        with ExitStack() as stack:
            stack.enter_context(mstx_range("outer"))
            stack.enter_context(mstx_range("inner"))
        asyncio.run(main())

    assert encloses(one(got, "outer"), one(got, "inner"))
    assert encloses(one(got, "async outer"), one(got, "async inner"))
    assert {(r.name, r.depth) for r in got.ranges} == {
        ("outer", 0), ("inner", 1), ("async outer", 0), ("async inner", 1)
    }  # fmt: skip


def test_one_range_object_can_be_used_again_and_again() -> None:
    shared = mstx_range("shared")
    with captured() as got:
        for _ in range(3):
            with shared:
                pass

    assert [r.name for r in got.ranges] == ["shared"] * 3


def test_an_object_entered_twice_is_two_ranges_and_leaks_neither() -> None:
    """torch_npu's `mstx.annotate` leaks the outer range."""
    shared = mstx_range("shared")
    with captured() as got:
        with shared, shared:
            pass
        with mstx_range("after"):
            pass

    assert sorted(r.depth for r in got.ranges if r.name == "shared") == [0, 1]
    assert one(got, "after").depth == 0


def test_one_object_shared_by_loaders_that_stop_at_any_time_leaks_nothing() -> None:
    """torch_npu's dataloader patch keeps one range id for all loaders, and skips the end at StopIteration."""
    shared = mstx_range("next batch")

    def epoch(batches: int) -> None:
        loader = iter(range(batches))
        while True:
            with shared:
                next(loader)

    with captured() as got:
        for batches in (2, 3):
            with pytest.raises(StopIteration):
                epoch(batches)

    assert [r.error for r in got.ranges].count(True) == 0
    assert [r.depth for r in got.ranges] == [0] * 7


def test_one_object_as_decorator_of_two_functions_ranges_both() -> None:
    """torch_npu's `mstx.annotate` gives both the name of the first."""
    shared = mstx_range("shared")

    @shared
    def first() -> str:
        return "first"

    @shared
    def second() -> str:
        return "second"

    with captured() as got:
        answers = first(), second()

    assert answers == ("first", "second")
    assert (first.__name__, second.__name__) == ("first", "second")
    assert [r.name for r in got.ranges] == ["shared", "shared"]


def test_attributes_of_start_and_of_set_are_kept_with_their_types() -> None:
    with captured() as got:
        with mstx_range("rerank", tokens=3, ratio=0.5, model="7b", warm=True) as r:
            r.set(tokens=4, kept=2)

    attributes = one(got, "rerank").attributes
    assert attributes == {"tokens": 4, "ratio": 0.5, "model": "7b", "warm": True, "kept": 2}
    assert type(attributes["warm"]) is bool


def test_an_attribute_of_any_other_type_is_its_types_name() -> None:
    class Batch:
        pass

    with captured() as got:
        with mstx_range("x", batch=Batch(), nothing=None, big=1 << 70):
            pass

    assert one(got, "x").attributes == {"batch": "Batch", "nothing": None, "big": "int"}


def test_domain_and_stage_travel_with_the_range() -> None:
    with captured() as got:
        with mstx_range("compute", stage="actor_update", domain="train"):
            with mstx_range("inner"):
                inside = current_stage()

    assert inside == "actor_update"
    assert (one(got, "compute").stage, one(got, "compute").domain) == ("actor_update", "train")
    assert (one(got, "inner").stage, one(got, "inner").domain) == ("actor_update", "default")


def test_the_innermost_stage_is_the_current_one() -> None:
    with captured() as got:
        with stage("outer"):
            with stage("inner"):
                innermost = current_stage()
            after = current_stage()

    assert (innermost, after, current_stage()) == ("inner", "outer", None)
    assert {(r.name, r.stage) for r in got.ranges} == {("outer", "outer"), ("inner", "inner")}


def test_a_task_created_inside_a_stage_belongs_to_it() -> None:
    async def child() -> None:
        with mstx_range("child"):
            pass

    async def main() -> None:
        with stage("rollout"):
            task = asyncio.ensure_future(child())
        await task

    with captured() as got:
        asyncio.run(main())

    assert one(got, "child").stage == "rollout"


def test_a_mark_is_an_instant_with_stage_and_attributes() -> None:
    with captured() as got:
        with stage("reward"):
            mark("nan seen", domain="checks", layer=3)

    (seen,) = got.marks
    assert (seen.message, seen.domain, seen.stage, seen.attributes) == ("nan seen", "checks", "reward", {"layer": 3})


def test_a_range_keeps_the_step_at_its_begin() -> None:
    with captured() as got:
        step(41)
        with mstx_range("crossing"):
            following = step()
        with mstx_range("next"):
            pass

    assert following == 42
    assert (one(got, "crossing").step, one(got, "next").step) == (41, 42)


def test_at_step_holds_for_its_task_only() -> None:
    seen = {}

    async def ask(name: str) -> None:
        seen[name] = current_step()

    async def inside() -> None:
        with at_step(7):
            await asyncio.sleep(0)
            await asyncio.ensure_future(ask("child"))
            seen["inside"] = current_step()
        seen["after"] = current_step()

    async def main() -> None:
        await asyncio.gather(inside(), ask("beside"))

    with captured():
        step(3)
        asyncio.run(main())

    assert seen == {"beside": 3, "child": 7, "inside": 7, "after": 3}


@pytest.mark.parametrize("name", ["", "x" * 10_000_000, "a\0b", "\ud800", "line\nbreak", 5, None, b"bytes"])
def test_no_name_is_refused(name: Any) -> None:
    with captured() as got:
        with mstx_range(name):
            pass

    assert len(got.ranges) == 1


def test_the_marking_names_are_the_engines_own() -> None:
    """So that a call costs no Python frame of ours."""
    from mstxkit.engine.choose import engine

    assert (mstx_range, stage, mark) == (engine.mstx_range, engine.stage, engine.mark)
    assert (step, at_step, current_stage, current_step) == (
        engine.step, engine.at_step, engine.current_stage, engine.current_step
    )  # fmt: skip


@pytest.mark.parametrize("call", [mstx_range, stage, mark])
def test_help_shows_how_a_marking_name_is_called(call: Any) -> None:
    """By its signature, or in its text where the signature that is quickest to call says less."""
    shown = f"{inspect.signature(call)} {call.__doc__}"
    assert "domain" in shown
    assert "**attributes" in shown
    assert ("stage=None" in shown) == (call is mstx_range)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda held: pickle.loads(pickle.dumps(held))])
def test_a_copy_of_a_range_is_one_like_it_that_is_not_open(copied: Callable[[Any], Any]) -> None:
    """A model that holds a range can be copied, and an actor that holds one be sent to another process."""
    with captured() as got:
        for held in (mstx_range("plain"), mstx_range("full", domain="d", name="n"), stage("reward", prompts=3)):
            with held, copied(held):
                pass

    made = [(r.name, r.stage, r.domain, r.attributes) for r in got.ranges]
    assert made == [
        made_twice for one in (
            ("plain", None, "default", {}), ("full", None, "d", {"name": "n"}),
            ("reward", "reward", "default", {"prompts": 3}),
        ) for made_twice in (one, one)
    ]  # fmt: skip
    assert got.open == []
