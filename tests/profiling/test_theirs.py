"""Profilers of others are seen where they are made, started and stopped; their entry points are put back exactly."""

from __future__ import annotations

import sys
import threading
from enum import Enum
from types import ModuleType
from typing import Any, Iterator

import pytest
from builders import lives
from builders.threads import elsewhere

from mstxkit import faults
from mstxkit.profiling import profilers, theirs
from mstxkit.profiling.profilers import StepWindow, find_window

AUTOGRAD, PROFILER = "torch.autograd.profiler", "torch.profiler.profiler"


class Action(Enum):
    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


class Schedule:
    """As torch_npu's."""

    def __init__(self, wait: int, warmup: int, active: int, repeat: int = 1) -> None:
        self.counts = wait, warmup, active, repeat

    def __call__(self, step: int) -> Action:
        wait, warmup, active, repeat = self.counts
        cycle, place = divmod(step, wait + warmup + active)
        if place < wait or (repeat and cycle >= repeat):
            return Action.NONE
        if place < wait + warmup:
            return Action.WARMUP
        return Action.RECORD_AND_SAVE if place == wait + warmup + active - 1 else Action.RECORD


Schedule.__module__ = "torch_npu.profiler.scheduler"


class Profile:
    """As torch's, torch_npu's and MindSpore's keep themselves."""

    def __init__(self, schedule: Any = None) -> None:
        self.schedule = schedule or (lambda step: Action.RECORD)
        self.step_num, self.current_action = 0, self.schedule(0)

    def start(self) -> None:
        pass

    def step(self) -> None:
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)

    def stop(self) -> None:
        pass

    def _prepare_trace(self) -> str:
        return "prepared"


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Profile]]:
    """A class of profilers, as if it were torch's: looked on at."""
    made = type("Profile", (Profile,), {name: vars(Profile)[name] for name in ("__init__", "start", "step", "stop")})
    made._prepare_trace = Profile._prepare_trace  # type: ignore[attr-defined]
    for name in (AUTOGRAD, PROFILER):
        module = ModuleType(name)
        vars(module).update(profile=made, _run_on_profiler_start=lambda: None)
        monkeypatch.setitem(sys.modules, name, module)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("torch_npu", "mindspore")]:
        monkeypatch.delitem(sys.modules, name)
    undo = theirs.watch_profilers()
    yield made
    undo()
    faults.reset_counts()


@pytest.mark.parametrize(
    ("schedule", "steps", "window"),
    [
        (Schedule(2, 1, 2), 0, StepWindow(2, 3)),
        (Schedule(2, 1, 2), 2, StepWindow(0, 3)),
        (Schedule(2, 1, 2), 4, StepWindow(0, 1, 2)),
        (Schedule(2, 1, 2), 5, None),
        (Schedule(0, 0, 1, 0), 3, StepWindow(0, 1)),
        (Schedule(1, 0, 2, 0), 3, StepWindow(1, 2)),
        (None, 3, StepWindow()),
    ],
)
def test_a_schedule_tells_its_window(schedule: Any, steps: int, window: StepWindow | None) -> None:
    profiler = Profile(schedule)
    for _ in range(steps):
        profiler.step()

    assert find_window(profiler) == window


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (StepWindow(0, 2), "steps 6 to 7"),
        (StepWindow(2, 2), "steps 8 to 9"),
        (StepWindow(0, 1, 2), "steps 4 to 6"),
        (StepWindow(1, 1), "step 7"),
        (StepWindow(1), "from step 7 on"),
        (StepWindow(), ""),
    ],
)
def test_a_window_is_told_in_steps_of_the_training(window: StepWindow, words: str) -> None:
    assert window.words(6) == words
    assert window.words(None) == ""


def test_a_schedule_of_a_users_own_is_not_asked_about_later_steps() -> None:
    asked: list[int] = []

    def own(step: int) -> Action:
        asked.append(step)
        return Action.NONE

    assert find_window(Profile(own)) is None
    assert asked == [0]


def test_one_that_records_is_in_the_way_until_its_stop(kind: Any) -> None:
    profiler = kind()
    made = profilers.in_the_way()
    profiler.start()
    on = profilers.in_the_way()
    profiler.stop()

    assert (made, on[:27], profilers.in_the_way()) == ("", "torch's profile, started at", "")


def test_one_with_a_schedule_is_in_the_way_only_in_its_window(kind: Any) -> None:
    profiler = kind(Schedule(2, 1, 1))
    profiler.start()
    told = []
    for _ in range(6):
        told.append(
            (bool(profilers.in_the_way()), [begins_in for _, begins_in in profilers.list_coming(threading.get_ident())])
        )
        profiler.step()

    assert told == [(False, [2]), (False, [1]), (True, [0]), (True, [0]), (False, []), (False, [])]


def test_a_watcher_sees_what_the_thread_that_trains_sees(kind: Any) -> None:
    """One that was only made keeps nobody waiting, on whatever thread it is looked for."""
    kept = kind(), kind(Schedule(2, 1, 1))
    trains, seen = threading.get_ident(), []
    kept[1].start()
    elsewhere(lambda: seen.extend([profilers.list_coming(trains), profilers.list_coming(None)]))

    assert [[begins_in for _, begins_in in told] for told in seen] == [[2], [2]]


def test_a_refusal_says_who_since_when_and_what_to_do(kind: Any) -> None:
    profiler = kind()
    profiler.start()
    (other,) = profilers.find_others({})

    assert other.sentence.startswith("torch's profile is on, started at ")
    assert "UTC on thread MainThread; ask again after it, or take it out" in other.sentence


def test_one_that_was_started_before_is_seen_at_its_next_step(kind: Any) -> None:
    profiler = Profile.__new__(kind)
    Profile.__init__(profiler)
    before = profilers.in_the_way()
    profiler.step()

    assert before == ""
    assert profilers.in_the_way().startswith("torch's profile, started at ")


def test_one_that_exists_on_another_thread_is_waited_for_from_then_on(kind: Any) -> None:
    made: list[Any] = []
    elsewhere(lambda: made.append(kind()))
    waits = profilers.in_the_way()
    made.clear()

    assert waits.startswith("torch's profile, made at ")
    assert profilers.in_the_way() == ""


def test_ours_is_none_of_theirs(kind: Any) -> None:
    called: list[str] = []
    undo = theirs.before_they_start(called.append)
    with theirs.mark_ours():
        profiler = kind()
        profiler.start()
        profiler._prepare_trace()
    undo()

    assert (theirs.live, called) == ({}, [])


def test_who_is_to_give_way_is_told_before_theirs_begins(kind: Any) -> None:
    called: list[str] = []
    undo = theirs.before_they_start(called.append)
    answer = kind()._prepare_trace()
    sys.modules[AUTOGRAD]._run_on_profiler_start()
    undo()
    kind()._prepare_trace()

    assert (answer, called) == ("prepared", ["torch", "torch"])


def test_it_is_named_by_whose_code_begins_it(kind: Any) -> None:
    called: list[str] = []
    undo = theirs.before_they_start(called.append)
    exec("prepare()", {"__name__": "verl.utils.profiler.mstx_profile", "prepare": kind()._prepare_trace})
    undo()

    assert called == ["verl"]


def test_no_exception_of_ours_reaches_them(kind: Any) -> None:
    def fails(who: str) -> None:
        raise RuntimeError(who)

    undo = theirs.before_they_start(fails)
    answer = kind()._prepare_trace()
    undo()

    assert (answer, faults.counts) == ("prepared", {"theirs.give_way": 1})


def test_what_theirs_raises_is_theirs(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError):
        kind(1, 2, 3)

    assert faults.counts == {}


def test_the_entry_points_are_put_back(kind: Any) -> None:
    theirs.watch_profilers()()
    found = {name: vars(kind)[name] is vars(Profile)[name] for name in ("__init__", "start", "step", "stop")}
    theirs.watch_profilers()  # which the fixture takes back

    assert found == dict.fromkeys(found, True)


def test_to_look_on_imports_nothing() -> None:
    looks_on = "from mstxkit.profiling import theirs; theirs.watch_profilers()()"

    assert not lives.loads(looks_on, of="torch torch_npu mindspore wrapt logging")
