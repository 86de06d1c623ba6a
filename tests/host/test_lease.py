"""Who holds a lock and shows nothing for long is silent; who looks late himself does not call others late."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mstxkit.host import lease, life
from mstxkit.host.lease import Lease


class Watched:
    """A lock that somebody watches, at a time that the test sets."""

    def __init__(self, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.lock, self.lease = 1000.0, lock, Lease(lock)
        self.lock.touch()
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)

    def shows(self) -> None:
        status = os.stat(self.lock)
        os.utime(self.lock, ns=(status.st_atime_ns, status.st_mtime_ns + 1))

    def silent_after_s(self, at_most_s: float = 1000.0, every_s: float = 3.0) -> float | None:
        """When it is called silent; None: never."""
        began_s, until_s = self.now_s, self.now_s + at_most_s
        while self.now_s < until_s:
            if self.lease.is_silent():
                return self.now_s - began_s
            self.now_s += every_s
        return None


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path / f"x{life.SUFFIX}", monkeypatch)


def test_who_shows_nothing_is_silent_and_the_next_one_has_twice_as_long(watched: Watched) -> None:
    assert watched.silent_after_s() == lease.SILENT_S
    (another := watched.lock.with_name("another")).touch()
    another.replace(watched.lock)
    assert 2 * lease.SILENT_S <= (watched.silent_after_s() or 0) <= 2 * lease.SILENT_S + 3


def test_who_gets_on_is_never_silent_and_is_trusted_again(watched: Watched) -> None:
    watched.silent_after_s()
    for _ in range(20):
        watched.shows()
        assert watched.silent_after_s(9) is None
    watched.shows()

    assert lease.SILENT_S <= (watched.silent_after_s() or 0) <= lease.SILENT_S + 3


def test_after_all_were_stopped_together_nobody_is_silent(watched: Watched) -> None:
    assert watched.silent_after_s(7) is None
    watched.now_s += 600

    assert watched.silent_after_s(3) is None


def test_where_there_is_no_lock_nobody_is_silent(tmp_path: Path) -> None:
    assert not Lease(tmp_path / "none").is_silent()


def test_a_descriptor_that_is_another_file_s_by_now_is_not_touched(tmp_path: Path) -> None:
    """As where a program has closed every descriptor that it has."""
    lock, other = tmp_path / f"x{life.SUFFIX}", tmp_path / "other"
    life.hold_lock(lock)
    number = life._held_here()[str(lock)]
    os.close(number)
    other.write_bytes(b"")
    os.utime(other, ns=(1, 1))
    descriptor = os.open(other, os.O_RDONLY)
    os.dup2(descriptor, number)

    life.show_life(lock)

    assert os.stat(other).st_mtime_ns == 1
    life.let_go(lock)
    for open_ in {descriptor, number}:
        os.close(open_)


def test_who_holds_it_shows_that_it_gets_on(tmp_path: Path) -> None:
    lock = tmp_path / f"x{life.SUFFIX}"
    life.hold_lock(lock)
    os.utime(lock, ns=(1, 1))

    life.show_life(lock)

    assert os.stat(lock).st_mtime_ns > 1
    life.let_go(lock)
