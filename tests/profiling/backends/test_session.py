"""What holds for a session of every backend, on a recorder that does as it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import pytest

from mstxkit import faults
from mstxkit.profiling.backends import _session
from mstxkit.profiling.backends._session import ProfilerSession, Refused


class Recorder:
    """Notes its calls; goes wrong where `fails` says so: with an exception, or by not doing it."""

    on_disk = True
    notes = ("it noted this",)

    def __init__(self, folder: Path, fails: dict[str, Any]) -> None:
        self.folder, self.fails = folder, fails
        self.calls: list[str] = []
        self.records = False
        self.stays_on = False  # where an exception comes before the profiler was told

    def _act(self, name: str, records: bool) -> None:
        self.calls.append(name)
        problem = self.fails.get(name)
        if problem is None or (isinstance(problem, BaseException) and not self.stays_on):
            self.records = records
        if isinstance(problem, BaseException):
            raise problem

    def start(self) -> None:
        self._act("start", True)
        (self.folder / "data").write_bytes(b"12345")

    def stop(self) -> None:
        self._act("stop", False)

    def close(self) -> None:
        self._act("close", False)

    def is_recording(self) -> bool:
        return self.records

    def output(self) -> Path | None:
        return None if "output" in self.fails else self.folder

    def lacking(self, output: Path, holds: str = "") -> str | None:
        return self.fails.get("lacking")


class Begun:
    """A session of a `Recorder`, and that recorder."""

    def __init__(self, folder: Path, **fails: Any) -> None:
        self.recorder = Recorder(folder, fails)
        self.session = ProfilerSession.begun("tried", folder, lambda made: self.recorder)


@pytest.fixture(autouse=True)
def _none_is_left_open() -> Iterator[None]:
    yield
    left, _session._open = dict(_session._open), {}
    assert not left


def test_an_outcome_says_what_was_recorded_and_when(tmp_path: Path) -> None:
    begun = Begun(tmp_path / "made" / "here")
    assert begun.session.is_running
    assert begun.session.bytes_so_far() == 5

    outcome = begun.session.stop([7, 8])

    assert (outcome.folder, outcome.steps, outcome.bytes) == (tmp_path / "made" / "here", (7, 8), 5)
    assert outcome.problems == ()
    assert 0 < outcome.start_ns <= outcome.end_ns
    assert not begun.session.is_running
    assert begun.recorder.calls == ["start", "stop"]


def test_a_second_stop_gives_the_same_outcome_and_stops_nothing(tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    outcome = begun.session.stop([1])

    assert begun.session.stop([2]) is outcome
    assert begun.recorder.calls == ["start", "stop"]
    assert begun.session.bytes_so_far() == 5


def test_a_second_session_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    first = Begun(tmp_path / "first")
    second = Begun(tmp_path / "second")

    outcome = second.session.stop()
    assert outcome.problems == ("refused: a session of tried records in this process already",)
    assert (second.recorder.calls, outcome.folder) == ([], None)
    assert not (tmp_path / "second").exists()
    assert first.session.stop().problems == ()


def test_a_start_that_raises_is_stopped_and_reported(tmp_path: Path) -> None:
    begun = Begun(tmp_path, start=RuntimeError("no device"))

    assert not begun.session.is_running
    assert begun.session.stop().problems == ("start: RuntimeError: no device",)
    assert begun.session.stop().start_ns == 0
    assert begun.recorder.calls == ["start", "stop"]
    assert faults.counts == {"backends.tried.start": 1}


def test_a_start_that_does_nothing_and_says_nothing_is_reported(tmp_path: Path) -> None:
    begun = Begun(tmp_path, start="ignored")

    assert not begun.session.is_running
    assert begun.session.stop().problems == ("tried did not start: it said so in its own log, if at all",)


def test_a_refusal_is_no_fault(tmp_path: Path) -> None:
    def refuse(folder: Path) -> Any:
        raise Refused("somebody else has it")

    session = ProfilerSession.begun("tried", tmp_path, refuse)

    assert session.stop().problems == ("refused: somebody else has it",)
    assert faults.counts == {}


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    begun = Begun(tmp_path / "file" / "below")

    (problem,) = begun.session.stop().problems
    assert problem.startswith("start: ")
    assert "file" in problem
    assert begun.recorder.calls == []


def test_a_profiler_that_does_not_stop_is_closed(tmp_path: Path) -> None:
    begun = Begun(tmp_path, stop="ignored")

    outcome = begun.session.stop()

    assert begun.recorder.calls == ["start", "stop", "close"]
    assert outcome.problems == ("tried did not stop when told to, and was closed by force: data may be missing",)
    assert outcome.folder == tmp_path


def test_a_profiler_that_cannot_even_be_closed_is_reported_as_still_on(tmp_path: Path) -> None:
    begun = Begun(tmp_path, stop="ignored", close="ignored")

    outcome = begun.session.stop()

    assert outcome.problems[-1] == "tried still records: no other session can begin on this thread"


@pytest.mark.parametrize(
    ("fails", "problem"), [({"output": True}, "nothing was written"), ({"lacking": "no device data"}, "no device data")]
)
def test_what_is_not_on_disk_is_a_problem(tmp_path: Path, fails: dict[str, Any], problem: str) -> None:
    assert Begun(tmp_path, **fails).session.stop().problems == (problem,)


def test_an_output_that_holds_what_it_must_is_whole(tmp_path: Path) -> None:
    assert Begun(tmp_path / "1").session.stop().is_whole
    assert Begun(tmp_path / "2", stop=ValueError("while writing")).session.stop().is_whole
    assert not Begun(tmp_path / "3", lacking="no device data").session.stop().is_whole
    assert not Begun(tmp_path / "4", output=True).session.stop().is_whole


def test_what_cannot_be_looked_at_is_a_problem_and_no_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Begun(tmp_path)

    def unreachable(recorder: Recorder) -> Path:
        raise OSError("the file system is gone")

    monkeypatch.setattr(Recorder, "output", unreachable)

    assert begun.session.bytes_so_far() is None
    outcome = begun.session.stop()
    assert (outcome.problems, outcome.folder, outcome.bytes) == (("look: the file system is gone",), None, 0)


def test_an_interrupt_of_the_start_goes_through_and_the_profiler_is_stopped(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, {"start": KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        ProfilerSession.begun("tried", tmp_path, lambda made: recorder)

    assert (recorder.calls, recorder.records) == (["start", "stop"], False)
    assert Begun(tmp_path).session.stop().problems == ()


def test_an_interrupt_of_the_stop_goes_through_and_the_profiler_is_closed(tmp_path: Path) -> None:
    begun = Begun(tmp_path, stop=KeyboardInterrupt())
    begun.recorder.stays_on = True
    with pytest.raises(KeyboardInterrupt):
        begun.session.stop()

    assert (begun.recorder.calls, begun.recorder.records) == (["start", "stop", "close"], False)
    assert begun.session.stop().problems == ("the stop was interrupted: data may be missing",)
    assert Begun(tmp_path).session.stop().problems == ()


def test_sizes_are_those_of_all_files_below(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"123")
    (tmp_path / "d").write_bytes(b"12")
    (tmp_path / "dangling").symlink_to("nowhere")

    assert _session.size_bytes(tmp_path) == 5 + len("nowhere")
    assert _session.size_bytes(tmp_path / "d") == 2
    assert _session.size_bytes(tmp_path / "gone") == 0
    assert _session.size_bytes(None) == 0
