"""A session begins once that is written down; what takes long costs an occurrence, what never comes the request.

No clock runs here: tests move it, waiting moves it too, and the folder answers when a test says so.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest
from builders import lives
from builders.escalated_run import control
from builders.rank_on_duty import GENERATE, QUICK, UPDATE, NewRank, Rank

from mstxkit import faults
from mstxkit.escalation.duty import beginning, mailbox
from mstxkit.escalation.duty.beginning import ANSWERS_WITHIN_S, Beginnings
from mstxkit.escalation.duty.mailbox import Mailbox
from mstxkit.escalation.machine.moves import Commit, SessionFailed, SessionPutOff
from mstxkit.recorder.background import Background
from mstxkit.store import documents
from mstxkit.store.control_folder import ControlFolder
from mstxkit.store.messages import of_decision
from mstxkit.store.request import Request

RUN = "a" * 32
ONE_WAIT_S = 0.05 + 1e-9  # of floating-point numbers


class Clock:
    """The monotonic clock of those who wait for a word to be written."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.waited_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return int(self.now_s * 1e9)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.waited_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (beginning, mailbox):
        monkeypatch.setattr(module, "time", clock)
    # Where waiting takes no time the watcher's thread may still be about to begin.
    monkeypatch.setattr(Background, "lacks_cpu", False)
    return clock


# ---- one word after the other ----


class Folder:
    """What is said, and a watcher that writes it when it is asked to, or never: then the test writes."""

    def __init__(self, path: Path) -> None:
        self.box = Mailbox(ControlFolder(path, RUN), path)
        self.answers = False
        self.said = 0
        self.thread = SimpleNamespace(runs=True, lacks_cpu=False)
        watcher: Any = SimpleNamespace(background=self.thread, look_now=self._asked)
        self.beginnings = Beginnings(self.box, watcher, self._say, "the folder")

    def _say(self) -> mailbox.AckNumber:
        self.said += 1
        return self.box.acknowledge(0, {"said": self.said})

    def _asked(self) -> None:
        if self.answers:
            self.box.flush()

    def tries(self, stage: str = UPDATE, id: str = "id") -> Any:
        obstacle = self.beginnings.obstacle(id, stage)
        if not isinstance(obstacle, SessionPutOff):  # it begins, or never will
            self.beginnings.is_over(id, stage)
        return obstacle


@pytest.fixture
def folder(tmp_path: Path, clock: Clock) -> Folder:
    return Folder(tmp_path)


PUT_OFF = SessionPutOff("the folder had not answered within 50 ms")


def test_what_is_written_at_once_may_begin_and_is_said_for_each_session(folder: Folder, clock: Clock) -> None:
    folder.answers = True

    assert [folder.tries(), folder.tries()] == [None, None]
    assert (folder.said, clock.waited_s) == (2, 0)


def test_what_is_written_later_may_begin_then_without_another_word_or_wait(folder: Folder, clock: Clock) -> None:
    first = folder.tries()
    waited_s = clock.waited_s
    second = folder.tries()
    folder.box.flush()
    clock.now_s += 10 * ANSWERS_WITHIN_S

    assert [first, second, folder.tries()] == [PUT_OFF, PUT_OFF, None]
    assert folder.said == 1
    assert waited_s == clock.waited_s == pytest.approx(0.05)


def test_where_another_process_has_the_device_its_word_holds_until_it_begins(folder: Folder, clock: Clock) -> None:
    folder.answers = True
    for _ in range(3):
        assert folder.beginnings.obstacle("id", UPDATE) is None

    assert (folder.said, folder.tries(), folder.tries(), folder.said) == (1, None, None, 2)


def test_what_is_said_since_is_as_good(folder: Folder) -> None:
    """It says too that the session may have begun."""
    folder.tries()
    folder.box.acknowledge(0, {"said": "since"})
    folder.box.flush()

    assert folder.tries() is None


def test_a_folder_that_never_answers_is_waited_for_once_and_then_the_session_has_failed(
    folder: Folder, clock: Clock
) -> None:
    since_s, answers = clock.now_s, []
    for later_s in (0.0, 0.5, 1.0, 1.9, ANSWERS_WITHIN_S):
        clock.now_s = max(clock.now_s, since_s + later_s)
        answers.append(folder.tries())

    why = "its beginning could not be written down: the folder has not answered for 2 s"
    assert answers == [PUT_OFF] * 4 + [SessionFailed(why)]
    assert clock.waited_s <= ONE_WAIT_S


def test_where_the_host_has_no_cpu_to_write_with_the_folder_is_not_blamed_and_the_request_goes_on(
    folder: Folder, clock: Clock
) -> None:
    folder.thread.lacks_cpu = True
    busy = [folder.tries()]
    clock.now_s += 10 * ANSWERS_WITHIN_S
    busy.append(folder.tries())
    folder.box.flush()

    assert busy == 2 * [SessionPutOff("this host was too busy to write to the folder within 50 ms")]
    assert folder.tries() is None
    assert clock.waited_s <= ONE_WAIT_S


def test_what_the_folder_refuses_has_failed_at_once_also_where_it_took_long_to_say_so(
    folder: Folder, tmp_path: Path
) -> None:
    tried = folder.tries()
    (tmp_path / "control").write_text("a file is where the folder was")
    folder.box.flush()
    late = folder.tries()
    folder.answers = True
    at_once = folder.tries()

    assert tried == PUT_OFF
    assert all(isinstance(each, SessionFailed) and "cannot be written" in each.reason for each in (late, at_once))
    assert faults.counts == {"control.files": 1}


def test_each_stage_has_a_word_of_its_own_and_what_another_request_awaited_is_forgotten(folder: Folder) -> None:
    tried = [folder.tries(UPDATE), folder.tries(GENERATE)]
    folder.box.flush()

    assert [*tried, folder.tries(GENERATE), folder.tries(GENERATE)] == [PUT_OFF, PUT_OFF, None, PUT_OFF]
    assert folder.tries(UPDATE) is None
    assert folder.tries(id="other") == PUT_OFF
    assert {id for id, _ in folder.beginnings._awaited} == {"other"}


# ---- on duty, with the watcher's thread ----


class Writes:
    """The acknowledgements of a run folder: written, or not before the folder answers again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer = threading.Event()
        self.answer.set()
        self._replace = documents.replace_file
        monkeypatch.setattr(documents, "replace_file", self._written)

    def _written(self, file: Path, content: bytes) -> None:
        if file.parent.name == "acks":
            self.answer.wait()
        self._replace(file, content)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Writes]:
    writes = Writes(monkeypatch)
    yield writes
    writes.answer.set()


def is_written(rank: Rank) -> bool:
    """Has the watcher written what a session waits for, and is it what a restart must know?"""
    box, awaited = rank.duty._mailbox, list(rank.duty._beginnings._awaited.values())
    if not awaited or not all(box.is_written(announced.word) for announced in awaited):
        return False
    found = control(rank.run).acknowledgement(0)
    assert found is not None and all(task["had_session"] for task in found.document["memory"]["tasks"])
    return True


def test_a_folder_that_answers_late_costs_an_occurrence_and_not_the_request(
    rank: Rank, writes: Writes, clock: Clock
) -> None:
    request = rank.ask(occurrences=1)
    writes.answer.clear()
    rank.duty.watcher.start()
    for _ in range(3):
        rank.once(UPDATE)
    before, waited_s = list(rank.session.did), clock.waited_s
    clock.now_s += ANSWERS_WITHIN_S / 2
    writes.answer.set()
    assert lives.wait_until(lambda: is_written(rank))
    rank.once(UPDATE)
    rank.duty.watcher.stop()

    assert (before, rank.session.did) == ([], [f"+{UPDATE}", f"-{UPDATE}"])
    assert waited_s <= ONE_WAIT_S
    last = rank.last(request)
    assert (last.state, last.recorded) == ("done", 1)
    assert "passed over" in last.reason and "had not answered within 50 ms" in last.reason


def agreed(new_rank: NewRank, step: int) -> tuple[Rank, Request]:
    """One of two ranks in this step, and a request of both for two steps, of which the other has said: from 5 on."""
    rank = new_rank(rank=1, world_size=2)
    rank.engine.step(step)
    request = rank.ask(ranks=[0, 1], steps=2)
    rank.send(of_decision(Commit(request.id, 5)))
    return rank, request


def test_a_folder_that_is_slow_costs_nothing_of_a_window_whose_step_was_known_before(
    new_rank: NewRank, writes: Writes, clock: Clock
) -> None:
    """Ranks that agree on a step have no other one: it is written in the step before."""
    rank, request = agreed(new_rank, step=3)
    rank.engine.step(4)
    rank.look()
    writes.answer.clear()
    rank.duty.watcher.start()
    for step in (5, 6):
        rank.engine.step(step)
        rank.once(UPDATE)
    did, waited_s = list(rank.session.did), clock.waited_s
    writes.answer.set()
    rank.duty.watcher.stop()
    rank.engine.step(7)

    assert (did, waited_s) == (2 * [f"+{UPDATE}", f"-{UPDATE}"], 0)
    assert (rank.last(request).state, rank.last(request).reason) == ("done", "")


def test_what_was_written_before_is_written_anew_while_the_step_lasts_and_is_not_believed_for_long(
    new_rank: NewRank, writes: Writes, clock: Clock
) -> None:
    """A folder that answered a minute ago may hang by now: training does not go into it unasked."""
    rank, request = agreed(new_rank, step=4)
    rank.look()
    numbers = [rank.duty._mailbox._outgoing["rank1.json"][0]]
    for _ in range(2):
        clock.now_s += 4
        rank.look()
        numbers.append(rank.duty._mailbox._outgoing["rank1.json"][0])
    writes.answer.clear()
    rank.duty.watcher.start()
    clock.now_s += 60
    rank.engine.step(5)
    rank.once(UPDATE)
    writes.answer.set()
    rank.duty.watcher.stop()

    assert numbers[0] == numbers[1] < numbers[2]
    assert rank.session.did == []
    assert rank.last(request).reason.startswith("the agreed step 5 had begun here: ")


def test_a_folder_that_never_answers_fails_the_request_and_training_has_waited_once(
    rank: Rank, writes: Writes, clock: Clock
) -> None:
    request = rank.ask(occurrences=1)
    writes.answer.clear()
    rank.duty.watcher.start()
    states = []
    for _ in range(4):
        rank.once(UPDATE)
        states.append(rank.duty._machine.reports()[request.id].state)
        clock.now_s += ANSWERS_WITHIN_S / 2
    writes.answer.set()
    rank.duty.watcher.stop()

    assert states == ["armed", "armed", "failed", "failed"]
    assert "could not be written down" in rank.last(request).reason and "for 2 s" in rank.last(request).reason
    assert rank.session.did == []
    assert clock.waited_s <= ONE_WAIT_S


def test_a_session_that_is_put_off_takes_nothing_from_light_capture(
    new_rank: NewRank, writes: Writes, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mstxkit.profiling.backends.find_profiler", lambda: ("ascend", {}))
    rank = new_rank(QUICK._replace(light="every 1 steps, 1 step"))
    rank.engine.step(10)
    rank.ask(occurrences=1)
    writes.answer.clear()
    rank.duty.watcher.start()
    rank.once(UPDATE)
    before = list(rank.session.did)
    writes.answer.set()
    assert lives.wait_until(lambda: is_written(rank))
    rank.once(UPDATE)
    rank.duty.watcher.stop()
    rank.duty.stop()

    assert before == ["+light"]
    assert rank.session.did == ["+light", "-light", f"+{UPDATE}", f"-{UPDATE}", "+light", "-light"]
