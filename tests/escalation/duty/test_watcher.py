"""The watcher's thread: it polls until it is stopped, and whatever a poll meets."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from mstxkit import faults
from mstxkit.escalation.duty.mailbox import Mailbox
from mstxkit.escalation.duty.watcher import Watcher
from mstxkit.host import folders, identity
from mstxkit.store.control_folder import ControlFolder

RUN = "a" * 32


@pytest.fixture
def control(tmp_path: Path) -> ControlFolder:
    for name in ("run", "host"):
        (tmp_path / name).mkdir(mode=0o700)
    return ControlFolder(tmp_path / "run", RUN)


def test_a_watcher_polls_in_the_background_until_it_is_stopped(control: ControlFolder, tmp_path: Path) -> None:
    box = Mailbox(control, folders.live_folder(RUN, str(tmp_path / "host"), tmp_path))
    watcher = Watcher(box.poll, interval_s=0.005)
    watcher.start()
    control.send({"id": "one"})
    box.acknowledge(0, {"one": "armed"})
    deadline = time.monotonic() + 20
    while not (box._news and control.acknowledgements()) and time.monotonic() < deadline:
        time.sleep(0.005)
    watcher.stop()
    watcher.stop()
    control.send({"id": "two"})
    time.sleep(0.03)

    assert box.take() == [{"id": "one"}]
    assert not [thread for thread in threading.enumerate() if thread.name == "mstxkit-control"]
    watcher.start()
    while not box._news and time.monotonic() < deadline:
        time.sleep(0.005)
    watcher.stop()
    assert box.take() == [{"id": "two"}]
    box.close()


def test_processes_that_began_together_do_not_look_in_lock_step(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    for pid in (101, 102):
        monkeypatch.setattr(identity, "of_life", lambda pid=pid: {"pid": pid, "pid_start": 7000})
        watcher = Watcher(lambda: None, interval_s=0.25)
        monkeypatch.setattr(watcher._events, "wait", waits.append)
        watcher._look()
        watcher._look()

    assert waits[0] == waits[1] and waits[2] == waits[3] and waits[0] != waits[2]
    assert all(0.75 * 0.25 < wait <= 0.25 for wait in waits)


def test_a_stopped_watcher_has_ended() -> None:
    """A fork right after it must not copy a thread in the middle of a poll."""
    entered, left = threading.Event(), threading.Event()

    def poll() -> None:
        entered.set()
        time.sleep(0.05)
        left.set()

    watcher = Watcher(poll)
    watcher.start()
    assert entered.wait(20)
    watcher.stop()

    assert left.is_set()


def test_a_poll_that_fails_is_a_counted_fault_and_the_next_one_is_made() -> None:
    calls = threading.Semaphore(0)

    def poll() -> None:
        calls.release()
        raise RuntimeError("odd")

    watcher = Watcher(poll, interval_s=0.001)
    watcher.start()
    for _ in range(3):
        assert calls.acquire(timeout=20)
    watcher.stop()

    assert faults.counts["control.watcher"] >= 3


def waits_of(monkeypatch: pytest.MonkeyPatch, looks: int = 8, **more: object) -> list[float]:
    """How long a watcher sleeps after each look."""
    waits: list[float] = []
    watcher = Watcher(lambda: None, interval_s=0.25, **more)  # type: ignore[arg-type]
    monkeypatch.setattr(watcher._events, "wait", waits.append)
    for _ in range(looks):
        watcher._look()
    watcher.stop()
    return waits


def test_who_is_told_of_news_looks_rarely_and_who_reads_for_his_host_once_a_second(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert 22 < waits_of(monkeypatch, places=lambda: [tmp_path])[-1] <= 30
    assert 0.75 < waits_of(monkeypatch, places=list)[-1] <= 1.0


def test_who_has_just_begun_looks_sooner_for_its_stages_are_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told_of_it, *waits = waits_of(monkeypatch, places=lambda: [tmp_path])

    assert told_of_it == 0.0  # what came before nobody told of
    assert waits[0] <= 2.0 and waits == sorted(waits)
    assert sum(waits[:4]) < 32 and len({*waits[-2:]}) == 1


def test_what_is_done_beside_a_look_is_done_while_nothing_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    waits_of(monkeypatch, 2, places=list, beside=lambda: done.append("nothing goes on"))
    waits_of(monkeypatch, 2, places=lambda: None, beside=lambda: done.append("something does"))
    assert done == ["nothing goes on"] * 2


def test_what_came_before_the_kernel_tells_is_looked_for_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    waits: list[float] = []
    watcher = Watcher(lambda: None, 60.0, lambda: [tmp_path])
    monkeypatch.setattr(watcher._events, "wait", waits.append)
    for _ in range(2):
        watcher._look()
    watcher.stop()

    assert waits[0] == 0 and waits[1] > 15


def test_who_is_not_told_or_has_something_to_do_looks_as_often_as_he_was_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert waits_of(monkeypatch, places=lambda: None)[-1] <= 0.25
    assert waits_of(monkeypatch, places=lambda: [tmp_path / "missing"])[-1] <= 0.25


def test_where_the_kernel_refuses_to_tell_a_look_a_second_has_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whose limits are used up has many processes, all of which look."""
    monkeypatch.setattr("mstxkit.host.folder_events._call_library", lambda name, *values: -1)

    assert 0.75 < waits_of(monkeypatch, places=lambda: [tmp_path])[-1] <= 1.0
    assert 0.75 < waits_of(monkeypatch, places=list)[-1] <= 1.0, "a shared folder is not asked more often for that"


def test_what_is_renamed_into_its_folder_is_looked_at_at_once(tmp_path: Path) -> None:
    looks: list[bool] = []
    watcher = Watcher(lambda: looks.append((tmp_path / "news").exists()), 60.0, lambda: [tmp_path])
    watcher.start()
    while not looks:
        time.sleep(0.005)
    (tmp_path / "draft").write_text("x")
    (tmp_path / "draft").rename(tmp_path / "news")
    deadline = time.monotonic() + 50
    while not looks[-1] and time.monotonic() < deadline:
        time.sleep(0.005)
    watcher.stop()

    assert looks[-1]
    assert watcher._events._events is None, "a forked child would share it"
