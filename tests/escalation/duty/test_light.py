"""Light capture on duty: by its schedule, never beside an escalation, and never a second time where it was refused."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator

import pytest
from builders.rank_on_duty import QUICK, Rank, Recording
from builders.run_files import RUN_ID
from builders.threads import elsewhere

from mstxkit import faults
from mstxkit.engine.choose import engine
from mstxkit.escalation.duty import light as lights
from mstxkit.escalation.duty.light import LightOnDuty
from mstxkit.profiling import presets
from mstxkit.profiling.schedule import Schedule
from mstxkit.profiling.session import Order

NPU = ("torch_npu", {})
CPU = ("torch", {"torch_npu": "it is not imported"})
NONE = (None, {"torch": "it is not imported"})


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Says what can record here."""

    def is_here(found: Any) -> None:
        monkeypatch.setattr(lights.backends, "find_profiler", lambda: found)

    is_here(NPU)
    return is_here


@pytest.fixture
def session(where: Any) -> Iterator[Recording]:
    session = Recording()
    yield session
    assert session.wrong == []
    faults.reset_counts()


def light(session: Recording, words: str) -> LightOnDuty:
    def order(step: int) -> Order:
        return Order(Path("run"), RUN_ID, 0, 1, "", "light", step, presets.load_preset("light"))

    return LightOnDuty(Schedule.parse(words), session, order)  # type: ignore[arg-type]


def walked(light: LightOnDuty, steps: Any) -> None:
    for step in steps:
        light.stepped(step)


def test_it_records_the_steps_of_its_schedule(session: Recording) -> None:
    walked(light(session, "every 4 steps, 2 steps"), range(14))

    assert [order.step for order in session.orders] == [4, 8, 12]
    assert [steps for _, steps in session.ends] == [[4, 5], [8, 9]]
    assert {order.preset.name for order in session.orders} == {"light"}


def test_windows_that_touch_are_sessions_of_their_own(session: Recording) -> None:
    """Else one session would last as long as the run."""
    walked(light(session, "every 2 steps, 2 steps"), range(7))

    assert [steps for _, steps in session.ends] == [[2, 3], [4, 5]]


def test_a_jump_into_another_window_ends_the_one_that_is_open(session: Recording) -> None:
    walked(light(session, "every 10 steps, 2 steps"), (10, 30, 31, 40))

    assert [steps for _, steps in session.ends] == [[10], [30, 31]]


def test_it_gives_way_to_an_escalation_and_returns(session: Recording) -> None:
    on_duty = light(session, "every 4 steps, 2 steps")
    walked(on_duty, (3, 4))
    on_duty.pause()
    session.begin(on_duty._order(4)._replace(stage="actor_update"))
    on_duty.stepped(5)
    session.end("done", [4])
    on_duty.resume()
    walked(on_duty, (6, 7, 8))

    assert session.did == ["+light", "-light", "+actor_update", "-actor_update", "+light", "-light", "+light"]
    assert session.ends[0] == ("an escalation", [4])


def test_it_ends_before_somebody_elses_profiler_begins_and_returns_with_the_next_step(session: Recording) -> None:
    on_duty = light(session, "every 4 steps, 4 steps")
    walked(on_duty, (4, 5))
    on_duty.give_way("cut short by verl's profile")
    on_duty.pause()
    on_duty.resume()
    at_once = list(session.did)
    walked(on_duty, (6, 7))

    assert at_once == ["+light", "-light"], "not in the step in which theirs begins"
    assert (session.did, session.ends) == (["+light", "-light", "+light"], [("cut short by verl's profile", [4, 5])])


def test_it_waits_for_somebody_elses_profile_and_begins_within_its_window(
    session: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_duty = light(session, "every 4 steps, 4 steps")
    monkeypatch.setattr(lights.profilers, "in_the_way", lambda: "verl's profile")
    walked(on_duty, (4, 5))
    monkeypatch.setattr(lights.profilers, "in_the_way", lambda: "")
    walked(on_duty, (6, 7))

    assert [order.step for order in session.orders] == [6]
    assert faults.counts == {"light capture": 2}


def test_for_a_profiler_that_begins_on_another_thread_it_ends_at_its_next_step(session: Recording) -> None:
    on_duty = light(session, "every 4 steps, 4 steps")
    walked(on_duty, (4,))
    elsewhere(on_duty.give_way, "cut short by verl's profile")
    walked(on_duty, (5,))

    assert session.ends == [("cut short by verl's profile", [4])]


@pytest.mark.parametrize(("found", "words", "records"), [
    (NPU, "every 2 steps, 1 step", True),
    (CPU, "every 2 steps, 1 step", False),
    (CPU, "every 2 steps, 1 step, any device", True),
    (NONE, "every 2 steps, 1 step, any device", False),
])  # fmt: skip
def test_without_an_npu_there_is_none_unless_it_is_asked_for(
    session: Recording, where: Any, found: Any, words: str, records: bool
) -> None:
    where(found)
    walked(light(session, words), range(4))

    assert bool(session.orders) is records
    assert bool(faults.counts) is not records, "it is said once why not"


def test_what_was_refused_is_not_tried_again_before_the_next_window(session: Recording) -> None:
    on_duty = light(session, "every 4 steps, 3 steps")
    session.refuses = "device 0 is taken"
    walked(on_duty, (4,))
    session.refuses = ""
    walked(on_duty, (5, 6))
    on_duty.pause()
    on_duty.resume()
    refused = list(session.did)
    walked(on_duty, (7, 8))

    assert (refused, session.did) == ([], ["+light"])
    assert faults.counts == {"light capture": 1}


def test_a_window_that_touches_a_refused_one_is_tried(session: Recording) -> None:
    on_duty = light(session, "every 1 steps, 1 step")
    session.refuses = "device 0 is taken"
    walked(on_duty, (1, 2))
    session.refuses = ""
    walked(on_duty, (3,))

    assert session.did == ["+light"]


def test_nothing_begins_after_the_end(session: Recording) -> None:
    """The end of an escalation that ends with the process tells light capture to go on."""
    on_duty = light(session, "every 1 steps, 1 step")
    on_duty.stepped(1)
    on_duty.finish()
    on_duty.resume()
    on_duty.stepped(2)

    assert session.did == ["+light", "-light"]


def test_a_session_that_began_on_another_thread_is_ended_there(session: Recording) -> None:
    on_duty = light(session, "every 2 steps, 1 step")
    begun, paused = threading.Event(), threading.Event()

    def step() -> None:
        on_duty.stepped(2)
        begun.set()
        paused.wait(10)
        on_duty.stepped(3)

    stepping = threading.Thread(target=step)
    stepping.start()
    begun.wait(10)
    on_duty.pause()
    still_open = session.is_open
    paused.set()
    stepping.join()

    assert still_open and not session.is_open
    assert session.did == ["+light", "-light"]


# ---- on duty ----


@pytest.fixture
def rank(tmp_path: Path, where: Any) -> Iterator[Rank]:
    """A rank whose light capture records every step."""
    with_stages = tmp_path / "run"
    rank = Rank(engine, with_stages, QUICK._replace(light="every 1 steps, 1 step"))
    engine.watch(True)
    for key in ("actor_update", "actor_generate"):
        rank.once(key)
    engine.watch(False)
    yield rank
    rank.killed()
    assert rank.session.wrong == [] and faults.counts == {}


def test_on_duty_light_and_escalation_alternate(rank: Rank) -> None:
    engine.step(10)
    request = rank.ask(occurrences=1)
    with engine.stage("actor_update"):
        inside = rank.duty.doing()
    outside = rank.duty.doing()
    engine.step(11)

    assert (inside, outside) == (f"full of actor_update for request {request.id}", "light capture")
    assert rank.session.did == [
        "+light", "-light", "+actor_update", "-actor_update", "+light", "-light", "+light"
    ]  # fmt: skip
    assert rank.last(request).state == "done"


@pytest.mark.parametrize("is_inside", [False, True])
def test_on_duty_the_end_leaves_nothing_open(rank: Rank, is_inside: bool) -> None:
    engine.step(20)
    rank.ask(occurrences=1)
    stage = engine.stage("actor_update")
    if is_inside:
        stage.__enter__()
    rank.duty.stop()
    if is_inside:
        stage.__exit__(None, None, None)
    engine.step(21)

    assert not rank.session.is_open
    assert rank.session.did == ["+light", "-light", *(["+actor_update", "-actor_update"] if is_inside else [])]


def test_where_another_process_has_the_device_in_these_steps_its_own_are_those_right_after(session: Recording) -> None:
    """Else the one that is a little earlier would have it in each window, and this one never."""
    on_duty = light(session, "every 4 steps, 1 step")
    for step in range(14):
        session.taken_by = session.refuses = "device 0 is taken" if step % 4 == 0 else ""
        on_duty.stepped(step)

    assert [ended for _, ended in session.ends] == [[5], [9]]


class Shared:
    """The claim of one of two processes on their device, as `guard.Claim` tells it."""

    def __init__(self, other: Recording, to_record: str = "light") -> None:
        self._other, self._to_record = other, to_record

    @property
    def wanted_by(self) -> Any:
        return SimpleNamespace(pid=1, stage=self._to_record) if self._other.is_waiting else None

    def is_left(self) -> bool:
        return self._other.is_waiting


@pytest.mark.parametrize("words", ["every 5 steps, 2 steps", "every 1 step, 1 step", "every 3 steps, 3 steps"])
def test_two_processes_that_always_meet_record_as_often(where: Any, words: str) -> None:
    """With steps at the same instants, one has its turn right after the other; also where a schedule has no gaps."""
    one, two = Recording(), Recording()
    one.claim, two.claim = Shared(two), Shared(one)
    lights_of = [(one, light(one, words)), (two, light(two, words))]
    for step in range(40):
        for own, on_duty in lights_of:
            other = two if own is one else one
            own.taken_by = own.refuses = "device 0 is taken" if other.is_open else ""
            on_duty.stepped(step)

    assert abs(len(one.ends) - len(two.ends)) <= 1 and len(two.ends) > 4
    assert faults.counts == {}, "to wait for one's turn is no fault"


def test_it_ends_with_the_step_in_which_a_request_in_another_process_waits_for_the_device(session: Recording) -> None:
    on_duty, other = light(session, "every 9 steps, 9 steps"), Recording()
    session.claim = Shared(other, "actor_update")
    walked(on_duty, (9, 10))
    other.is_waiting = True
    walked(on_duty, (11, 12))
    other.is_waiting = False
    walked(on_duty, (13,))

    assert session.ends == [("process 1 waits to record actor_update", [9, 10])]
    assert session.did == ["+light", "-light", "+light"]
