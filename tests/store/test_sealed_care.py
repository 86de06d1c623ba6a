"""Quotas of host and run, and age: the oldest sealed files go, never the newest of a process, and each is counted."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from builders import soak
from builders.local_seals import HOST, SealedPlace
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import mstxkit
from mstxkit.errors import FormatError
from mstxkit.host import detached
from mstxkit.store import care_record, documents, layout, sealed_care, sealed_place
from mstxkit.store.care_record import Cost

DAY_S = 86400


@pytest.fixture
def place(tmp_path: Path) -> SealedPlace:
    return SealedPlace(tmp_path)


def total(place: SealedPlace) -> int:
    folders = [place.here, place.sealed]
    paths = [sealed_place.path_of(folders, name) for name in sealed_place.all_names(folders)]
    return sum(path.stat().st_size for path in paths)


def test_a_host_keeps_so_much_here_and_in_the_run_together(place: SealedPlace) -> None:
    first, second = place.process(1), place.process(2)
    for number in (1, 2, 3):
        place.write(first, number, local=False, at_s=number)
    for number in (1, 2):
        place.write(second, number, local=number == 2, at_s=10 + number)
    other = place.write(place.process(1, "elsewhere"), 1, local=False, at_s=0)
    size = other.stat().st_size
    place.take_care(host_bytes=3 * size, mb_s=0)

    assert place.names() == ([f"{second}.0002.mxs"], sorted([other.name, f"{first}.0003.mxs", f"{second}.0001.mxs"]))
    assert place.removed() == {first: Cost(2, 2 * size, 20)}


def test_a_run_keeps_so_much_of_all_hosts(place: SealedPlace) -> None:
    hosts = [place.process(1, host) for host in ("a", "b", HOST)]
    paths = [place.write(process, number, local=False, at_s=number) for process in hosts for number in (1, 2, 3)]
    size = paths[0].stat().st_size
    place.take_care(run_bytes=4 * size)

    left = place.names()[1]
    assert len(left) == 4 and {f"{process}.0003.mxs" for process in hosts} <= set(left)
    assert sum(cost.records for cost in place.removed().values()) == 50
    assert place.records()["run.json"].host == ""


def test_the_newest_of_a_process_stays_however_large(place: SealedPlace) -> None:
    for pid in (1, 2):
        place.write(place.process(pid), 1, local=False, size=10_000)
    place.take_care(host_bytes=1, run_bytes=1)

    assert len(place.names()[1]) == 2 and place.removed() == {}


def test_what_was_moved_and_what_is_here_are_within_a_processs_quota(place: SealedPlace) -> None:
    process = place.process(1)
    place.announce(process)
    for number in range(1, 5):
        place.write(process, number, at_s=number)
    size = (place.here / f"{process}.0001.mxs").stat().st_size
    place.take_care(quota_bytes=3 * size)

    assert place.names() == ([f"{process}.0004.mxs"], [f"{process}.0002.mxs", f"{process}.0003.mxs"])
    assert place.removed() == {process: Cost(1, size, 10)}


def test_what_is_too_old_goes_but_for_the_newest_of_who_may_write_and_what_is_no_sealed_file(
    place: SealedPlace,
) -> None:
    ended, alive, now = place.process(1), place.process(2, "elsewhere"), time.time()
    place.announce(alive)
    for process in (ended, alive):
        for number in (1, 2):
            place.write(process, number, local=False, at_s=now - 3 * DAY_S)
    place.write(place.process(3), 1, local=False, at_s=now - DAY_S)
    place.write(place.process(4), 1, at_s=now - 3 * DAY_S)
    for part in (layout.SUMMARIES, layout.VERDICTS):
        (place.run / part).mkdir()
        (place.run / part / "x-1.mxb").write_bytes(b"kept")
        os.utime(place.run / part / "x-1.mxb", (0, 0))
    place.take_care(keep_days=2, mb_s=0)

    assert place.names() == ([], sorted([f"{alive}.0002.mxs", f"{place.process(3)}.0001.mxs"]))
    assert [len(os.listdir(place.run / part)) for part in (layout.SUMMARIES, layout.VERDICTS)] == [1, 1]
    assert {process: cost.files for process, cost in place.removed().items()} == {
        ended: 2, alive: 1, place.process(4): 1,
    }  # fmt: skip


def test_a_host_whose_wall_clock_is_ahead_removes_nothing_that_is_not_too_old(
    place: SealedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, wall_ns = time.time(), time.time_ns
    for days in (1, 3):
        for number in (1, 2):
            place.write(place.process(days, "elsewhere"), number, local=False, at_s=now - days * DAY_S)
        place.write(place.process(days), 1, at_s=now - days * DAY_S)
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + 365 * DAY_S * 10**9)
    place.take_care(keep_days=2, mb_s=0)

    young = place.process(1, "elsewhere")
    assert place.names() == ([f"{place.process(1)}.0001.mxs"], [f"{young}.0001.mxs", f"{young}.0002.mxs"])


def test_links_and_files_of_others_are_never_removed(place: SealedPlace, tmp_path: Path) -> None:
    outside = tmp_path / f"{place.process(1)}.0001.mxs"
    outside.write_bytes(bytes(5000))
    (place.sealed / outside.name).symlink_to(outside)
    (place.sealed / "notes.txt").write_text("theirs")
    (place.sealed / f"{place.process(9)}.0001.mxs").mkdir()
    for number in (1, 2):
        place.write(place.process(2), number, local=False, at_s=number)
    place.take_care(host_bytes=1, run_bytes=1, keep_days=0.001)

    assert outside.exists() and (place.sealed / outside.name).is_symlink()
    assert (place.sealed / "notes.txt").exists() and (place.sealed / f"{place.process(9)}.0001.mxs").is_dir()


def test_a_folder_of_sealed_files_that_is_a_link_is_left_alone(place: SealedPlace, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    shutil.rmtree(place.sealed)
    place.sealed.symlink_to(tmp_path / "theirs")
    for number in (1, 2):
        (tmp_path / "theirs" / f"{place.process(1)}.{number:04d}.mxs").write_bytes(bytes(1000))
    place.take_care(host_bytes=1, run_bytes=1, keep_days=0.001)

    assert len(os.listdir(tmp_path / "theirs")) == 2


@pytest.mark.parametrize("name", ["../run.json", "/etc/passwd", "x", "a.0001.mxs/../../run.json", ".mxs"])
def test_a_record_that_asks_to_remove_anything_else_is_not_obeyed(place: SealedPlace, name: str) -> None:
    (record,) = place.records().values()
    own = place.here / f"{layout.PASSED_ON}care.json"
    care_record.write_file(own, place.run_id, record._replace(removing={name: Cost(1, 1, 1)}))
    place.take_care(mb_s=0)

    assert (place.run / "run.json").exists() and os.path.exists("/etc/passwd")


def test_the_run_as_a_whole_is_looked_at_by_one_host_and_seldom(
    place: SealedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    locked = sealed_care.documents.hold_lock
    monkeypatch.setattr(sealed_care.documents, "hold_lock", lambda *words: looks.append(words) or locked(*words))
    for _ in range(3):
        place.take_care(run_bytes=1 << 30, every_s=100.0)

    assert len(looks) == 1


def test_two_at_once_do_not_meet(place: SealedPlace) -> None:
    with documents.try_lock(place.here / sealed_care.LOCK) as is_alone:
        assert is_alone
        assert sealed_care.take_care(place.care()) is None
        assert sealed_care.take_care(place.care(), within_s=0.3) is None


def test_words_of_a_command_line_say_the_same(place: SealedPlace) -> None:
    for care in (place.care(), place.care(place=None, keep_days=1.5, host_bytes=7)):
        assert detached.of_words(care_record.SealedCare, detached.words_of(care)) == care


def test_records_are_counted_by_heads_and_by_index(run: Path, tmp_path: Path) -> None:
    with mstxkit.capture(run):
        for _ in range(7):
            mstxkit.mark("x")
    (path,) = (run / "sealed").iterdir()
    by_index = sealed_care.records_in(path)
    no_index = path.read_bytes()[:-1]
    path.write_bytes(no_index)

    assert by_index == sealed_care.records_in(path) == 7
    assert sealed_care.records_in(tmp_path / "nothing") == sealed_care.records_in(tmp_path) == 0


class Files(RuleBasedStateMachine):
    """Processes write and end, somebody takes care and may be killed at any of its steps: every file is in one place or
    was removed, and what was removed is counted once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.place = SealedPlace(self.folder)
        self.written: dict[str, bytes] = {}
        self.newest: dict[int, int] = {}
        self.ended: set[int] = set()
        self.clock = 1e9

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(pid=st.integers(1, 3), size=st.integers(1, 400))
    def write(self, pid: int, size: int) -> None:
        if pid not in self.ended:
            process = self.place.process(pid)
            self.place.announce(process)
            self.newest[pid] = self.newest.get(pid, 0) + 1
            self.clock += 1
            path = self.place.write(process, self.newest[pid], size=size, at_s=self.clock)
            self.written[path.name] = path.read_bytes()

    @precondition(lambda self: self.newest)
    @rule(pid=st.integers(1, 3))
    def end(self, pid: int) -> None:
        self.ended.add(pid)
        self.place.end(self.place.process(pid))

    @rule(host_bytes=st.sampled_from([0, 0, 500, 1500]), run_bytes=st.sampled_from([0, 0, 800]))
    def take_care(self, host_bytes: int, run_bytes: int) -> None:
        assert self.place.take_care(host_bytes=host_bytes, run_bytes=run_bytes)[1] == ""
        assert self.place.names()[0] == [self.name_of(pid) for pid in sorted(set(self.newest) - self.ended)]

    def name_of(self, pid: int) -> str:
        return layout.sealed_name(self.place.process(pid), self.newest[pid])

    @rule(host_bytes=st.sampled_from([0, 500]), step=st.integers(0, 30))
    def killed(self, host_bytes: int, step: int) -> None:
        """Of all that changes a disk, nothing more after so many calls."""
        left = [step]

        def counted(call: Any) -> Any:
            def one_of(*args: Any, **kwargs: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt
                return call(*args, **kwargs)

            return one_of

        with pytest.MonkeyPatch.context() as monkeypatch:
            for name in ("rename", "replace", "unlink", "fsync", "write"):
                monkeypatch.setattr(os, name, counted(getattr(os, name)))
            try:
                self.place.take_care(host_bytes=host_bytes)
            except KeyboardInterrupt:
                pass

    @invariant()
    def every_file_is_there_once_or_was_counted(self) -> None:
        folders = [self.place.here, self.place.sealed]
        names = sealed_place.all_names(folders)
        for name in names:
            with os.fdopen(sealed_place.open_sealed(folders, name), "rb") as stream:
                assert stream.read() == self.written[name]
        assert {self.name_of(pid) for pid in self.newest} <= set(names)
        gone = set(self.written) - set(names)
        own = care_record.read_file(self.place.here / f"{layout.PASSED_ON}care.json", self.place.run_id)
        costs = [] if own is None else [*own.removed.values(), *own.removing.values()]
        costs += [
            cost
            for name, record in self.place.records().items()
            if name == "run.json"
            for cost in record.removed.values()
        ]
        counted = sum(cost.files for cost in costs)
        under_way = 0 if own is None else len(set(own.removing) & set(names))
        assert len(gone) == counted - under_way


Files.TestCase.settings = settings(max_examples=soak.rounds(300, 12), stateful_step_count=25, deadline=None)
test_files_that_move_and_go = Files.TestCase


def test_records_are_counted_where_nothing_can_be_unpacked(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the care process, which runs without site-packages."""
    with mstxkit.capture(run):
        for _ in range(7):
            mstxkit.mark("x")
    (path,) = (run / "sealed").iterdir()
    monkeypatch.setattr(sealed_care.block_index, "read_index", refuse)

    assert sealed_care.records_in(path) == 7


def refuse(*_: Any) -> Any:
    raise FormatError("compressed with what is not installed", 0)
