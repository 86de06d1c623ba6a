"""The owner of a machine, with the real control folder and both engines: what is recorded, when, and what is said."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, Callable, Iterator

import pytest
from builders import lives
from builders.escalated_run import control, empty_run, say
from builders.rank_on_duty import GENERATE, QUICK, UPDATE, NewRank, Rank, Recording, listen
from builders.run_files import RUN_ID
from builders.threads import elsewhere, on_threads

from mstxkit import faults
from mstxkit.escalation.duty import duty as duties
from mstxkit.escalation.duty import sentry
from mstxkit.escalation.duty.post import post_here
from mstxkit.escalation.machine.moves import Commit
from mstxkit.host import identity
from mstxkit.store.messages import of_cancel, of_decision
from mstxkit.store.report import Standing
from mstxkit.store.request import Request

# ---- what is recorded ----


def test_each_occurrence_is_recorded_once_from_before_its_begin_to_after_its_end(rank: Rank) -> None:
    request = rank.ask(occurrences=2)
    listen(rank.engine, rank.session.did)
    for _ in range(3):
        rank.once(UPDATE)

    around = ["+actor_update", "begin actor_update", "end actor_update", "-actor_update"]
    assert rank.session.did == [*around, *around, "begin actor_update", "end actor_update"]
    last = rank.last(request)
    assert (last.state, last.recorded, last.bytes) == ("done", 2, 200)


def test_what_ends_while_the_watcher_looks_is_said_at_its_next_look_and_not_when_news_come(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for news of others, half a minute, with nothing to do and something to say."""
    monkeypatch.setattr(rank.duty._mailbox, "places_of_news", lambda: [rank.host])
    request = rank.ask(occurrences=1)
    rank.once(UPDATE)  # once the look had asked whether there is anything to say

    assert rank.said()[request.id].state != "done"
    assert rank.duty._places_of_news() is None
    assert rank.last(request).state == "done"
    assert rank.duty._places_of_news() == [rank.host]


def test_the_watcher_never_asks_in_the_midst_of_an_event_whether_there_is_anything_to_say(rank: Rank) -> None:
    """As an event ends a request, there is no more to do before it is seen that there is something to say."""
    answers: list[object] = []
    watcher = threading.Thread(target=lambda: answers.append(rank.duty._places_of_news()))
    rank.duty._is_changed = False
    with rank.duty._lock:
        watcher.start()
        watcher.join(0.2)
        rank.duty._is_changed = True
    watcher.join()

    assert answers == [None]


def test_what_another_role_of_its_rank_enters_is_not_waited_for(rank: Rank) -> None:
    """It stayed armed for an hour, and all later requests of the rank waited."""
    say(rank.run, 0, role="rollout", stages=("critic_update",))
    rank.once(UPDATE)
    request = rank.ask(stage=[UPDATE, "critic_update"], occurrences=2)
    rank.once(UPDATE)
    assert rank.last(request).state == "armed"
    rank.once(UPDATE)

    last = rank.last(request)
    assert (last.state, last.recorded, last.reason) == ("done", 2, "")


def test_a_stage_that_nobody_else_of_its_rank_has_entered_is_waited_for(rank: Rank) -> None:
    say(rank.run, 1, role="rollout", stages=("critic_update",))
    rank.once(UPDATE)
    request = rank.ask(stage=[UPDATE, "critic_update"], occurrences=1)
    rank.once(UPDATE)
    assert rank.last(request).state == "armed"

    rank.once("critic_update")
    assert (rank.last(request).state, rank.last(request).recorded) == ("done", 2)


def test_a_session_is_ordered_as_it_was_asked_for(rank: Rank) -> None:
    rank.engine.step(7)
    request = rank.ask(preset="kernels", reason="slow since yesterday", limits={"seconds": 3, "bytes": 5000})
    rank.engine.step(8)
    rank.once(UPDATE)

    order = rank.session.orders[0]
    assert (order.run, order.run_id, order.rank, order.world_size, order.role) == (rank.run, RUN_ID, 0, 1, "")
    assert (order.stage, order.step, order.preset.name, order.request) == (UPDATE, 8, "kernels", request.id)
    assert (order.reason, order.seconds, order.bytes) == ("slow since yesterday", 3, 5000)
    assert rank.session.ends == [("its stage or sample is complete", [8])]


def test_other_stages_and_other_ranks_are_not_touched(new_rank: NewRank) -> None:
    rank = new_rank(rank=0, world_size=2)
    mine, others = rank.ask(ranks=[0], occurrences=1), rank.ask(ranks=[1], occurrences=1)
    rank.once(GENERATE)
    with rank.engine.mstx_range("actor_update"):
        pass

    assert rank.session.did == []
    rank.once(UPDATE)
    rank.once(UPDATE)
    assert rank.session.did == ["+actor_update", "-actor_update"]
    assert rank.last(mine).state == "done" and others.id not in rank.said()


def test_a_stage_inside_itself_is_one_occurrence(rank: Rank) -> None:
    request = rank.ask(occurrences=1)
    with rank.engine.stage(UPDATE):
        rank.once(UPDATE)
        rank.once(GENERATE)
        assert rank.session.is_open

    assert rank.session.did == ["+actor_update", "-actor_update"]
    assert rank.last(request).recorded == 1


def test_an_exception_goes_on_to_the_program_and_closes_the_session(rank: Rank) -> None:
    request = rank.ask(occurrences=1)
    with pytest.raises(ZeroDivisionError), rank.engine.stage(UPDATE):
        assert 1 // 0

    assert rank.session.did == ["+actor_update", "-actor_update"]
    last = rank.last(request)
    assert (last.state, last.reason) == ("done", "the stage ended in an error")


def test_a_stage_of_a_signals_handler_is_passed_over_wherever_that_interrupts_us(rank: Rank) -> None:
    """Of a checkpoint that is saved at SIGTERM, say: it waited for ever for a lock that its own thread held."""
    request, met = rank.ask(occurrences=1), list[str]()

    def save(_: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_name != "handle":
            frame = frame.f_back
        met.extend([] if frame is None else ["in the middle of it"])
        rank.once(GENERATE)
        rank.engine.step(1)

    before, until_s = signal.signal(signal.SIGALRM, save), time.monotonic() + 60
    try:
        while len(met) < 5 and time.monotonic() < until_s:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 3e-4))
            rank.once("other")
            rank.engine.step(0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    rank.once(UPDATE)

    assert len(met) >= 5 and not faults.counts
    assert rank.session.did == ["+actor_update", "-actor_update"]
    assert rank.last(request).state == "done"


def test_steps_are_windows_of_steps(rank: Rank) -> None:
    rank.engine.step(10)
    request = rank.ask(steps=2)
    for step in (10, 11, 12, 13):
        rank.engine.step(step)
        rank.once(UPDATE)
        rank.once(UPDATE)

    last = rank.last(request)
    assert (last.state, last.first_step, last.last_step, last.recorded_steps) == ("done", 11, 12, (11, 12))
    assert [order.step for order in rank.session.orders] == [11, 11, 12, 12]


def test_steps_that_only_the_context_tells_are_steps_too(rank: Rank) -> None:
    request = rank.ask(steps=1)
    for step in (20, 20, 21):
        with rank.engine.at_step(step):
            rank.once(UPDATE)

    last = rank.last(request)
    assert (last.state, last.first_step, last.recorded) == ("done", 20, 2)
    assert [order.step for order in rank.session.orders] == [20, 20]


def test_a_stage_that_may_end_on_another_thread_is_refused(rank: Rank) -> None:
    request = rank.ask(occurrences=1)

    def body() -> Iterator[None]:
        yield

    assert list(rank.engine.driven(rank.engine.intern(UPDATE, UPDATE), body())) == [None]

    assert rank.session.did == []
    assert rank.last(request).state == "refused"


def test_nothing_is_watched_but_while_something_is_armed(rank: Rank) -> None:
    site, off = rank.engine.intern(UPDATE, UPDATE), []
    rank.engine.set_recording(False)
    off.append(rank.engine.is_on(site))
    rank.ask(occurrences=1)
    off.append(rank.engine.is_on(site))
    rank.once(UPDATE)
    off.append(rank.engine.is_on(site))

    assert off == [False, True, False]


def test_without_room_in_the_run_requests_are_refused(new_rank: NewRank) -> None:
    rank = new_rank(QUICK._replace(run_bytes=100))
    first = rank.ask(occurrences=1, occasion="first")
    rank.once(UPDATE)
    second = rank.ask(occurrences=1, occasion="second")
    rank.once(UPDATE)

    assert (rank.last(first).state, rank.last(second).state) == ("done", "refused")
    assert "budget of 100 bytes" in rank.last(second).reason
    assert len(rank.session.orders) == 1


def test_after_each_request_that_had_a_session_there_is_a_cooldown(new_rank: NewRank) -> None:
    rank = new_rank(QUICK._replace(cooldown_s=0.2))
    first, second = (rank.ask(occurrences=1, occasion=word) for word in ("first", "second"))
    assert rank.last(second).state == "queued"
    for _ in range(2):
        rank.once(UPDATE)
    rank.look()
    while_cooling = list(rank.session.did), rank.duty._machine.phase(duties._look_now())
    time.sleep(0.21)
    rank.look()
    rank.once(UPDATE)

    assert while_cooling == (["+actor_update", "-actor_update"], "cooldown")
    assert (rank.last(first).state, rank.last(second).state) == ("done", "done")


# ---- what comes in while something is open ----


@pytest.mark.parametrize(
    "event", [lambda rank: rank.once(GENERATE), lambda rank: rank.engine.step()], ids=["stage", "step"]
)
def test_a_cancel_ends_an_open_session_at_the_next_event_of_its_thread(
    rank: Rank, event: Callable[[Rank], None]
) -> None:
    request = rank.ask(occurrences=1)
    with rank.engine.stage(UPDATE):
        rank.cancel(request)
        assert rank.session.is_open and rank.last(request).state == "draining"
        event(rank)
        assert not rank.session.is_open

    last = rank.last(request)
    assert (last.state, rank.session.did) == ("cancelled", ["+actor_update", "-actor_update"])
    assert "not wanted" in last.reason


def test_a_cancel_that_comes_first_holds(rank: Rank) -> None:
    request = rank.ask(stage="actor_update", occurrences=1, occasion="once")
    rank.cancel(request)
    rank.once(UPDATE)

    assert rank.session.did == []
    assert rank.last(request).state == "cancelled"


def test_an_event_of_another_thread_ends_no_session(rank: Rank) -> None:
    request = rank.ask(occurrences=1)
    with rank.engine.stage(UPDATE):
        rank.cancel(request)
        elsewhere(lambda: rank.once(GENERATE))
        assert rank.session.is_open

    assert rank.session.did == ["+actor_update", "-actor_update"]


def test_a_limit_of_bytes_ends_a_session_early(rank: Rank) -> None:
    request = rank.ask(occurrences=1, limits={"bytes": 1000})
    with rank.engine.stage(UPDATE):
        rank.session.bytes = 1500
        rank.look()
        rank.once(GENERATE)
        assert not rank.session.is_open

    last = rank.last(request)
    assert last.state == "done" and "limit of 1000 bytes, at 1500" in last.reason


def test_a_request_that_nothing_comes_for_expires(rank: Rank) -> None:
    now_ns = time.time_ns()
    request = rank.ask(created_ns=now_ns, expires_ns=now_ns + 50_000_000)
    armed = rank.said()[request.id].state
    time.sleep(0.06)
    rank.look()
    rank.once(UPDATE)

    assert (armed, rank.last(request).state, rank.session.did) == ("armed", "expired", [])


# ---- what comes in from whoever ----


def test_a_request_waits_for_its_stage_to_come(rank: Rank) -> None:
    later = f"later_{id(rank)}"
    rank.send(message_of(rank, later))
    assert rank.said() == {}
    rank.once(later)
    rank.look()
    states = [one.state for one in rank.said().values()]
    rank.engine.step(1)
    rank.once(later)

    assert (states, rank.session.did) == (["armed"], [f"+{later}", f"-{later}"])


def message_of(rank: Rank, stage: str, **given: Any) -> dict[str, Any]:
    """A request of any stage, as a message."""
    from mstxkit.store.messages import of_request
    from mstxkit.store.request import Known, check_request

    return of_request(
        check_request({"stage": stage, "ranks": [rank.rank], **given}, Known([stage], range(64), ["full"]))
    )


def damaged(message: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**message, "request": {**message["request"], **fields}}


HOSTILE: list[dict[str, Any]] = [
    {"id": "a"},
    {"id": "b", "kind": "request", "request": "rm -rf"},
    {"id": "c", "kind": "request", "request": {"stage": "../../../etc", "ranks": [0]}},
    {"id": "d", "kind": "cancel", "request": ["x"], "reason": "x"},
    {"id": "e", "kind": "cancel", "request": "x" * 300_000, "reason": "y" * 100_000},
    {"id": "f", "kind": "commit", "request": "x", "first_step": -1},
    {"id": "g", "kind": "commit", "request": "x", "first_step": 1 << 80},
    {"id": "h", "kind": "drop", "request": "x", "reason": None},
    {"id": "i", "kind": {"request": 1}, "request": {}},
    {"id": "j", "kind": "request", "request": {"stage": UPDATE, "ranks": [0], "steps": 1e400}},
    {"id": "\ud800", "kind": "nothing"},
]


def test_hostile_messages_are_refused_and_the_others_are_obeyed(rank: Rank) -> None:
    for message in HOSTILE:
        put(rank, message)
    put(rank, damaged(message_of(rank, UPDATE), steps=3))
    request = rank.ask(occurrences=1)
    rank.once(UPDATE)

    assert set(faults.counts) == {"control.messages"}
    faults.reset_counts()
    assert rank.session.did == ["+actor_update", "-actor_update"]
    assert rank.last(request).state == "done"
    assert {"a", "b", "c", "j"} <= {id for id, report in rank.said().items() if report.state == "refused"}


def put(rank: Rank, message: dict[str, Any]) -> None:
    """Write into the folder whatever it is, as anybody may."""
    path = control(rank.run).path / "requests.json"
    known = json.loads(path.read_text())["messages"] if path.exists() else []
    text = json.dumps({"format": 1, "run": RUN_ID, "messages": [*known, message]})
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_text(text)
    path.chmod(0o640)
    rank.look()


def test_many_requests_with_long_reasons_do_not_keep_a_rank_from_speaking(rank: Rank) -> None:
    """What a rank remembers has a limit of size too: else nothing could be written down, and no session begun."""
    for number in range(40):
        for one in range(25):
            message = of_cancel(f"{number:08x}{one:08x}", "x" * 490)
            rank.duty._hear(duties.messages.read_message(message, ("full",)))
    request = rank.ask(occurrences=1)
    rank.once(UPDATE)

    assert rank.last(request).state == "done"
    assert rank.duty._mailbox.problem is None


# ---- what is written down ----


def test_a_session_that_cannot_be_written_down_is_not_begun(rank: Rank) -> None:
    request = rank.ask(occurrences=1)
    acks = control(rank.run).path / "acks"
    acks.rename(acks.with_name("away"))
    acks.write_text("a file is where the folder was")
    rank.once(UPDATE)
    rank.once(UPDATE)
    began = list(rank.session.did)
    acks.unlink()
    acks.with_name("away").rename(acks)

    assert began == []
    last = rank.last(request)
    assert last.state == "failed" and "could not be written down" in last.reason
    assert set(faults.counts) == {"control.files"}
    faults.reset_counts()


def test_a_session_that_cannot_begin_is_said_and_the_next_one_does(rank: Rank) -> None:
    rank.session.refuses = "device 3 is taken by process 7"
    first = rank.ask(occurrences=1, occasion="first")
    rank.once(UPDATE)
    rank.session.refuses = ""
    second = rank.ask(occurrences=1, occasion="second")
    rank.once(UPDATE)

    assert rank.last(first).state == "failed" and "taken by process 7" in rank.last(first).reason
    assert rank.last(second).state == "done"


def test_while_another_process_has_the_device_its_turn_is_waited_for(rank: Rank, engine: Any) -> None:
    """What is asked for is recorded afterwards."""
    rank.session.taken_by = rank.session.refuses = "device 3 is taken by process 7"
    request = rank.ask(stage=UPDATE, steps=2)
    for step in (1, 2, 3):
        engine.step(step)
        rank.once(UPDATE)
    waits = rank.last(request)
    rank.session.taken_by = rank.session.refuses = ""
    for step in (4, 5, 6):
        engine.step(step)
        rank.once(UPDATE)
    done = rank.last(request)

    assert (waits.state, waits.reason) == ("armed", "an occurrence was passed over: device 3 is taken by process 7")
    assert (done.state, done.recorded_steps) == ("done", (4, 5))


def test_that_a_session_begins_is_on_disk_before_it_does(rank: Rank) -> None:
    request = rank.ask(occurrences=1)
    before: list[Any] = []
    begin = rank.session.begin

    def look_first(order: Any) -> Any:
        found = control(rank.run).acknowledgement(0)
        assert found is not None
        before.append([(task["had_session"], task["report"]["state"]) for task in found.document["memory"]["tasks"]])
        return begin(order)

    rank.session.begin = look_first  # type: ignore[method-assign]
    rank.once(UPDATE)

    assert before == [[(True, "running")]]
    assert rank.last(request).state == "done"


def test_a_watcher_that_speaks_meanwhile_takes_nothing_back(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has begun to say what was true before the session: what is on disk is what the training thread said after."""
    rank.ask(occurrences=1)
    has_built, may_go_on = threading.Event(), threading.Event()
    mailbox, watcher = rank.duty._mailbox, threading.Thread(target=lambda: rank.duty._say())
    acknowledge = mailbox.acknowledge

    def slowly(*args: Any) -> Any:
        if threading.current_thread() is watcher:
            has_built.set()
            may_go_on.wait(0.2)  # nobody can be waited for who waits for us
        return acknowledge(*args)

    monkeypatch.setattr(mailbox, "acknowledge", slowly)
    watcher.start()
    assert has_built.wait(10)
    with rank.engine.stage(UPDATE):
        may_go_on.set()
        watcher.join()
        mailbox.flush()
        found = control(rank.run).acknowledgement(0)
        assert found is not None
        tasks = found.document["memory"]["tasks"]

    assert [task["had_session"] for task in tasks] == [True]


def test_ranks_that_began_together_do_not_say_again_in_lock_step(
    new_rank: NewRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, said = [0.0], []
    clock = SimpleNamespace(monotonic=lambda: now_s[0], monotonic_ns=time.monotonic_ns, time_ns=time.time_ns)
    monkeypatch.setattr(duties, "time", clock)
    monkeypatch.setattr(sentry, "time", clock)
    for number in range(2):
        monkeypatch.setattr(identity, "of_life", lambda pid=101 + number: {"pid": pid, "pid_start": 7000})
        now_s[0] = 0.0
        rank = new_rank(rank=number, world_size=2)
        said.append([])
        for second in range(1, 600):
            now_s[0] = float(second)
            rank.look()
            if rank.duty._sentry._said_at == now_s[0]:
                said[-1].append(second)

    assert all(44 < later - earlier <= 61 for each in said for earlier, later in zip([0, *each], each))
    assert len(set(said[0]) & set(said[1])) < len(said[0]) / 2


# ---- restarts ----


def test_what_was_recorded_is_not_recorded_again_after_a_restart(new_rank: NewRank) -> None:
    first = new_rank()
    request = first.ask(occurrences=1)
    first.once(UPDATE)
    first.look()
    first.killed()
    second = new_rank()
    second.once(UPDATE)

    assert second.session.did == []
    assert second.last(request).state == "done"


def test_what_was_begun_has_failed_after_a_restart(new_rank: NewRank) -> None:
    first = new_rank()
    request = first.ask(occurrences=1)
    with first.engine.stage(UPDATE):
        first.killed()
    second = new_rank()
    second.once(UPDATE)

    assert first.session.is_open and second.session.did == []
    last = second.last(request)
    assert last.state == "failed" and "restarted while it recorded" in last.reason


@pytest.mark.parametrize(("first_step", "state"), [(5, "failed"), (10**8, "armed")])
def test_what_was_about_to_begin_has_failed_after_a_restart_and_what_was_far_off_waits(
    new_rank: NewRank, first_step: int, state: str
) -> None:
    first = new_rank(rank=1, world_size=2)
    first.engine.step(4)
    request = first.ask(ranks=[0, 1])
    first.send(of_decision(Commit(request.id, first_step)))
    first.look()
    first.killed()
    second = new_rank(rank=1, world_size=2)

    assert second.last(request).state == state


def test_what_waited_is_recorded_after_a_restart(new_rank: NewRank) -> None:
    first = new_rank()
    request = first.ask(occurrences=1)
    first.killed()
    second = new_rank()
    second.once(UPDATE)

    assert second.session.did == ["+actor_update", "-actor_update"]
    assert second.last(request).state == "done"


def test_a_memory_that_is_none_is_left_alone(new_rank: NewRank, tmp_path: Path) -> None:
    run = empty_run(tmp_path / "run")
    say(run, 0)  # its memory is {}
    rank = new_rank()
    request = rank.ask(occurrences=1)
    rank.once(UPDATE)

    assert rank.last(request).state == "done"
    assert set(faults.counts) == {"control.memory"}
    faults.reset_counts()


def test_the_end_closes_what_is_open_and_says_so(rank: Rank) -> None:
    request = rank.ask(occurrences=2)
    waiting = rank.ask(stage=GENERATE, occurrences=1)
    stage = rank.engine.stage(UPDATE)
    stage.__enter__()
    rank.duty.stop()
    stage.__exit__(None, None, None)

    assert rank.session.did == ["+actor_update", "-actor_update"]
    said = rank.said()
    assert said[request.id].state == "failed" and "the process ended; 1 of 2" in said[request.id].reason
    assert said[waiting.id].state == "failed"


def test_who_leaves_duty_holds_no_descriptor_of_it_any_more(rank: Rank) -> None:
    """A kernel lets a user have 128 that tell of news: a program that captures again and again had them all."""

    def opened() -> set[str]:
        return {f"{number} {target}" for number in os.listdir("/proc/self/fd") if (target := target_of(number))}

    def target_of(number: str) -> str:
        try:
            return os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            return ""  # that of the listing itself

    before = opened()
    rank.duty.watcher.start()
    assert lives.wait_until(lambda: any(name.endswith("inotify") for name in opened() - before))
    rank.duty.stop()

    assert opened() <= before


def test_what_another_thread_has_open_at_the_end_is_ended_by_that_thread(rank: Rank) -> None:
    request = rank.ask(occurrences=1)
    inside, stopped = threading.Event(), threading.Event()

    def train() -> None:
        with rank.engine.stage(UPDATE):
            inside.set()
            stopped.wait(10)

    training = threading.Thread(target=train)
    training.start()
    inside.wait(10)
    rank.duty.stop()
    still_open = rank.session.is_open
    stopped.set()
    training.join()
    rank.once(UPDATE)

    assert still_open and rank.session.did == ["+actor_update", "-actor_update"]
    assert "only the thread that started a session may stop it" in rank.said()[request.id].reason
    rank.engine.set_recording(False)
    assert not rank.engine.is_on(rank.engine.intern(UPDATE, UPDATE)), "nothing is watched any more"


def test_an_order_to_end_that_got_lost_is_made_up_for_at_the_end(rank: Rank) -> None:
    """An interrupt may come at any place of ours."""
    rank.ask(occurrences=1)
    stage = rank.engine.stage(UPDATE)
    stage.__enter__()
    assert rank.duty._machine._session is not None
    rank.duty._machine._session.stopping = True
    stage.__exit__(None, None, None)
    rank.duty.stop()

    assert rank.session.did == ["+actor_update", "-actor_update"]


# ---- interrupts ----


@pytest.mark.parametrize("where", ["begin", "end"])
def test_an_interrupt_in_a_session_leaves_nothing_open_and_the_next_request_is_recorded(
    rank: Rank, where: str, ctrl_c: None
) -> None:
    first = rank.ask(occurrences=1, occasion="first")
    rank.session.raises[where] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        with rank.engine.stage(UPDATE):
            sum(range(10))  # the C engine hands it on to the main thread: to the program's next Python
        sum(range(10))
    rank.once(UPDATE)
    second = rank.ask(occurrences=1, occasion="second")
    rank.once(UPDATE)

    assert not rank.session.is_open
    assert rank.last(first).state in ("failed", "done")
    assert rank.last(second).state == "done"


@pytest.mark.parametrize("where", ["begin", "end"])
def test_an_exit_that_a_signal_asks_for_inside_a_session_goes_on_to_the_program(rank: Rank, where: str) -> None:
    """A handler of SIGTERM calls sys.exit, wherever the training thread is."""
    request = rank.ask(occurrences=1)
    rank.session.raises[where] = SystemExit(143)
    with pytest.raises(SystemExit):
        with rank.engine.stage(UPDATE):
            sum(range(10))
        sum(range(10))
    rank.duty.stop()

    assert not rank.session.is_open
    assert rank.said()[request.id].has_ended


# ---- several threads ----


def test_stages_on_two_threads_at_once_give_one_session(rank: Rank) -> None:
    request = rank.ask(occurrences=20)
    together = threading.Barrier(2)

    def train() -> None:
        for _ in range(40):
            together.wait()
            rank.once(UPDATE)

    on_threads(2, lambda _: train())

    assert not rank.session.is_open
    assert rank.session.did == ["+actor_update", "-actor_update"] * 20
    assert rank.last(request).state == "done"


@pytest.fixture
def _threads_take_turns_often() -> Iterator[None]:
    """More of them meet; and who asks does not wait 5 ms, after each call of the system, for one that trains."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_threads_take_turns_often")
@pytest.mark.parametrize("seed", range(4))
def test_cancels_that_race_with_stage_ends_leave_nothing_open(rank: Rank, seed: int) -> None:
    """A watcher of its own looks all the time, while one thread trains and another asks and cancels."""
    over, asked = threading.Event(), []

    def ask() -> None:
        for number in range(15):
            request = rank.ask(occurrences=2, occasion=f"{seed} {number}")
            asked.append(request)
            if (number + seed) % 3:
                rank.cancel(request)
        over.set()

    asker = threading.Thread(target=ask)
    asker.start()
    loops = 0
    while not over.is_set() or loops < 50:
        with rank.engine.stage(UPDATE):
            rank.once(GENERATE)
        rank.engine.step()
        loops += 1
    asker.join()
    rank.duty.stop()

    assert not rank.session.is_open
    assert {rank.said()[request.id].state for request in asked} <= {"done", "cancelled", "failed"}


# ---- forks ----


def test_a_forked_child_has_nothing_and_its_parent_goes_on(rank: Rank) -> None:
    request = rank.ask(occurrences=2)
    with rank.engine.stage(UPDATE):
        pid = os.fork()
        if pid == 0:
            rank.once(UPDATE)
            rank.once(GENERATE)
            os._exit(len(rank.session.did) - 1)  # one began before it was born
        assert os.waitpid(pid, 0)[1] == 0
    rank.once(UPDATE)

    assert rank.session.did == ["+actor_update", "-actor_update"] * 2
    assert rank.last(request).state == "done"


# ---- which post ----


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """`post_here` of a run."""
    run = empty_run(tmp_path / "run")
    for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(variable, raising=False)
    identity.forget_learnt()
    yield lambda: post_here(run, RUN_ID, tmp_path)
    identity.forget_learnt()


def test_a_process_that_knows_no_rank_is_the_only_one(here: Callable[[], Any]) -> None:
    assert here()[3:6] == (0, 1, "")


def test_a_driver_of_ray_has_no_post_and_its_workers_have_theirs(
    here: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    of_driver = here()
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    identity.forget_learnt()

    assert of_driver is None
    assert here()[3:6] == (3, 8, "")


def test_a_second_process_of_a_rank_gets_a_role_of_its_own_while_the_first_lives(
    here: Callable[[], Any], tmp_path: Path
) -> None:
    run, ready = tmp_path / "run", "import sys; sys.stdin.readline()"
    with subprocess.Popen([sys.executable, "-c", ready], stdin=subprocess.PIPE) as other:
        of_other = {"pid": other.pid, "pid_start": identity.pid_start(other.pid)}
        say(run, 0, process=of_other)
        rewrite_pid(run, other.pid)
        beside = here()
        other.communicate(b"\n")
    after = here()

    assert (beside.role, after.role) == (f"process_{os.getpid()}", "")
    assert (beside.is_second, after.is_second) == (True, False)


def rewrite_pid(run: Path, pid: int) -> None:
    path = control(run).path / "acks" / "rank0.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": pid}))


def test_what_is_recorded_now_is_said_in_words(rank: Rank) -> None:
    request = rank.ask(occurrences=1)
    with rank.engine.stage(UPDATE):
        inside = rank.duty.doing()

    assert (inside, rank.duty.doing()) == (f"full of actor_update for request {request.id}", None)


def test_a_step_agreed_for_another_request_says_nothing(rank: Rank) -> None:
    request: Request = rank.ask(occurrences=1)
    rank.send(of_decision(Commit("f" * 16, 3)))
    rank.once(UPDATE)

    assert rank.last(request).state == "done"
    assert isinstance(rank.session, Recording)


AT_EXIT = """
import atexit, sys
from pathlib import Path
from builders.rank_on_duty import Rank
from mstxkit.engine.choose import engine

class Told(list):
    def append(self, what):
        print(what, flush=True)

rank = Rank(engine, Path(sys.argv[1]))
engine.watch(True)
with engine.stage("actor_update"):
    pass
rank.session.did = Told()
atexit.register(print, "the device is given back", flush=True)  # as torch_npu does, imported meanwhile
rank.ask(occurrences=1)
inside = engine.stage("actor_update")
inside.__enter__()
"""


def test_at_exit_a_session_ends_before_a_framework_gives_its_device_back(tmp_path: Path) -> None:
    tests = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT, str(tmp_path / "run")], env=environment, capture_output=True, text=True
    )

    assert done.stdout.splitlines() == ["+actor_update", "-actor_update", "the device is given back"], done.stderr


# ---- what the data must hold, and whether verdicts may ask ----


def test_a_session_of_a_whole_stage_must_hold_its_range_by_the_name_that_the_profiler_is_told(rank: Rank) -> None:
    rank.ask(occurrences=1)
    with rank.engine.mstx_range("update_policy", stage=UPDATE):
        pass

    assert rank.session.holds == ["update_policy"]


def test_what_was_cut_short_need_not_hold_a_range_that_had_not_ended(rank: Rank) -> None:
    request = rank.ask(occurrences=1)
    with rank.engine.stage(UPDATE):
        rank.cancel(request)
        rank.engine.step(1)

    assert rank.session.holds == [""]


def test_a_rank_says_whether_verdicts_may_ask_for_profiles_of_it(new_rank: NewRank) -> None:
    said = {}
    for number, act in enumerate(("observe", "escalate")):
        rank = new_rank(rank=number, world_size=2, settings=QUICK._replace(act=act))
        rank.look()
        said[act] = control(rank.run).acknowledgement(number)

    assert {act: of and Standing.read(of.document).act for act, of in said.items()} == {
        "observe": "observe", "escalate": "escalate",
    }  # fmt: skip
