"""Waiting for a file that is renamed into a folder; where the kernel tells nothing, it says so and waits."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path
from typing import Iterator

import pytest

from mstxkit.host import folder_events
from mstxkit.host.folder_events import FolderEvents
from mstxkit.host.folders import is_local

LONG_S = 60.0


@pytest.fixture
def events() -> Iterator[FolderEvents]:
    made = FolderEvents()
    assert made.open()
    yield made
    made.close()


def renamed_into(folder: Path, name: str = "requests.json") -> None:
    (folder / f".{name}").write_text("x")
    os.replace(folder / f".{name}", folder / name)


def is_told(events: FolderEvents) -> bool:
    """Does a wait end long before its time?"""
    began = time.monotonic()
    events.wait(LONG_S)
    return time.monotonic() - began < LONG_S / 2


def test_a_file_renamed_into_a_folder_ends_the_wait(events: FolderEvents, tmp_path: Path) -> None:
    assert events.watch([tmp_path])
    threading.Timer(0.05, renamed_into, [tmp_path]).start()

    assert is_told(events)


def test_what_came_before_the_wait_ends_it_too(events: FolderEvents, tmp_path: Path) -> None:
    assert events.watch([tmp_path])
    renamed_into(tmp_path)

    assert is_told(events)
    events.wait(0)  # and it is told once


def test_another_thread_ends_it(events: FolderEvents) -> None:
    threading.Timer(0.05, events.wake).start()

    assert is_told(events)


def test_a_folder_that_was_made_anew_is_watched_again(events: FolderEvents, tmp_path: Path) -> None:
    folder = tmp_path / "control"
    found = [events.watch([folder])]
    folder.mkdir()
    found.append(events.watch([folder]))
    folder.rename(tmp_path / "away")
    found.append(events.watch([folder]))
    folder.mkdir()
    found.append(events.watch([folder]))
    events.wait(0)  # what the kernel says of the old one
    renamed_into(folder)

    assert found == [False, True, False, True]
    assert is_told(events)


def test_while_nothing_comes_a_folder_is_not_looked_at_again(
    events: FolderEvents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may lie on a file system that answers for thousands."""
    asked: list[object] = []
    look = os.stat
    monkeypatch.setattr(folder_events.os, "stat", lambda path: asked.append(path) or look(path))
    watched = [events.watch([tmp_path]) for _ in range(3)]
    assert (watched, len(asked)) == ([True] * 3, 1)

    renamed_into(tmp_path)

    assert events.watch([tmp_path])
    assert (events.is_new, len(asked)) == (True, 2)


def test_a_folder_above_which_another_was_made_is_watched_after_some_time(
    events: FolderEvents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says nothing of that."""
    folder = tmp_path / "run" / "control"
    folder.mkdir(parents=True)
    assert events.watch([folder])
    (tmp_path / "run").rename(tmp_path / "away")
    folder.mkdir(parents=True)

    later = time.monotonic() + folder_events._SURE_FOR_S
    monkeypatch.setattr(folder_events.time, "monotonic", lambda: later)

    assert events.watch([folder]) and events.is_new
    monkeypatch.undo()
    renamed_into(folder)
    assert is_told(events)


def test_a_folder_that_is_no_longer_asked_for_tells_nothing(events: FolderEvents, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert events.watch([tmp_path / "one"]) and events.watch([tmp_path / "two"])
    events.wait(0)
    renamed_into(tmp_path / "one")
    threading.Timer(0.2, renamed_into, [tmp_path / "two"]).start()

    assert is_told(events)
    assert (tmp_path / "two" / "requests.json").exists()


def test_where_a_user_has_no_more_of_them_the_wait_is_one_that_asks(
    events: FolderEvents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_events, "_call_library", lambda name, *values: -1)
    threading.Timer(0.05, events.wake).start()

    assert not events.watch([tmp_path])
    assert is_told(events)


def test_a_program_that_closed_our_descriptors_keeps_its_own(events: FolderEvents, tmp_path: Path) -> None:
    assert events.watch([tmp_path])
    pipe, inotify = events._pipe, events._events
    assert pipe is not None and inotify is not None
    numbers = [pipe.end.number, pipe._write.number, inotify.number]
    for number in numbers:
        os.close(number)
    theirs = [os.open(tmp_path, os.O_RDONLY) for _ in numbers]
    events.wake()
    events.wait(0)

    assert sorted(theirs) == sorted(numbers)
    assert events.open() and events.watch([tmp_path])
    renamed_into(tmp_path)
    assert is_told(events)
    events.close()
    for number in theirs:
        os.close(number)  # still theirs: this raises where it was closed


def test_a_program_that_is_started_does_not_inherit_them(events: FolderEvents, tmp_path: Path) -> None:
    assert events.watch([tmp_path])
    assert events._pipe is not None and events._events is not None
    for end in (events._pipe.end, events._pipe._write, events._events):
        assert fcntl.fcntl(end.number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_a_file_system_of_this_kernel_is_local_and_one_that_is_not_known_is_not(tmp_path: Path) -> None:
    assert is_local(Path("/dev/shm"))
    assert not is_local(Path("/proc"))
    assert not is_local(tmp_path / "missing")
