"""What was just opened is ours only if it is still what it was opened as: a program may close it that very moment."""

from __future__ import annotations

import errno
import os
import select
from pathlib import Path
from typing import Callable, Iterator

import pytest

from mstxkit.host import descriptors, proc_files
from mstxkit.host.descriptors import OwnDescriptor, WakePipe
from mstxkit.host.folder_events import FolderEvents
from mstxkit.host.ready_queue import ReadyQueue
from mstxkit.recorder.kept_open import KeptOpen


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Puts a file that is always ready in the place of each descriptor, before its target is read. Returns those."""
    zero, taken = os.open("/dev/zero", os.O_RDWR), []
    target = descriptors.target_of

    def of_another(number: int) -> str:
        os.dup2(zero, number)
        taken.append(number)
        return target(number)

    monkeypatch.setattr(descriptors, "target_of", of_another)
    yield taken
    monkeypatch.undo()
    for number in {zero, *taken}:
        os.close(number)  # each is still the program's: this raises where one was closed


def queue() -> ReadyQueue:
    return ReadyQueue([])


def opened() -> OwnDescriptor:
    return OwnDescriptor.of(os.open(__file__, os.O_RDONLY), Path(__file__).name)


@pytest.mark.parametrize("make", [opened, WakePipe, queue])
def test_what_was_replaced_as_it_was_opened_is_not_taken_for_ours(
    make: Callable[[], object], program: list[int]
) -> None:
    with pytest.raises(OSError, match="closed it as it was opened") as raised:
        make()

    assert raised.value.errno == errno.EBADF
    assert len(program) == 1


def test_one_whose_file_was_removed_is_closed_all_the_same(tmp_path: Path) -> None:
    """It is ours still: each capture left one open for good."""
    path = tmp_path / "file"
    descriptor = OwnDescriptor.of(os.open(path, os.O_CREAT | os.O_RDONLY), path.name)
    path.unlink()
    before = descriptor.is_ours, descriptor.is_removed
    descriptor.close()

    assert before == (False, True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor.number)


def test_one_that_was_closed_at_once_is_not_ours_either() -> None:
    number = os.open(__file__, os.O_RDONLY)
    os.close(number)

    with pytest.raises(OSError, match="closed it as it was opened"):
        OwnDescriptor.of(number, Path(__file__).name)


def test_nothing_is_waited_for_on_a_file_that_is_always_ready(program: list[int], tmp_path: Path) -> None:
    events = FolderEvents()

    assert not events.open()
    assert not events.watch([tmp_path]) and events.is_refused
    assert events._events is None and events._pipe is None


def test_no_block_is_written_to_somebody_elses_file(program: list[int], tmp_path: Path) -> None:
    kept = KeptOpen()

    with pytest.raises(OSError, match="closed it as it was opened"):
        kept.append(tmp_path / "sealed", b"a block")
    kept.close()


def test_what_became_ready_first_is_told_first_also_where_others_are_added_and_dropped_meanwhile() -> None:
    pipes = [os.pipe() for _ in range(5)]
    ends = [read for read, _ in pipes]
    queue = ReadyQueue(ends[:4])
    for at in (2, 0, 3):
        os.write(pipes[at][1], b"x")
    told = [queue.wait(0)]
    queue.drop(ends[2])
    queue.add(ends[4])
    os.write(pipes[4][1], b"x")
    os.write(pipes[1][1], b"x")
    told.append(queue.wait(0))

    assert queue.is_ours
    assert told == [[ends[at] for at in order] for order in ((2, 0, 3), (0, 3, 4, 1))]
    queue.close()
    for end in (end for pipe in pipes for end in pipe):
        os.close(end)


def test_of_a_file_without_an_end_no_more_is_read_than_is_asked_for() -> None:
    assert len(proc_files.read_content("/dev/zero")) == 1 << 20
    assert proc_files.read_text("/proc/self/stat", 5) == f"{os.getpid()} ("[:5]


def test_where_no_proc_is_mounted_they_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "target_of", lambda number: "")
    monkeypatch.setattr(descriptors.os.path, "isdir", lambda path: False)
    pipe, waits = WakePipe(), select.poll()
    waits.register(pipe.end.number, select.POLLIN)
    pipe.wake()

    assert pipe.is_ours and waits.poll(0)
    pipe.close()
