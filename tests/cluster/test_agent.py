"""The agent of a host: what was handed over goes on in batches, once, whoever is keeper and whatever the disk does."""

from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from builders.mounts import frozen_disk  # noqa: F401

from mstxkit.cluster import agent as module
from mstxkit.cluster import batch_log
from mstxkit.cluster.agent import Agent
from mstxkit.cluster.batch_log import BatchLog
from mstxkit.recorder.kept_open import KeptOpen
from mstxkit.store import batches, layout, run_file, settings_file
from mstxkit.store.batches import READ_AGAIN_BYTES, Batch, BatchFile
from mstxkit.store.handed_over import SummaryRing
from mstxkit.store.settings_file import Figures
from mstxkit.store.summaries import StageSummary


class Place:
    """A run, and the processes of one host that hand over."""

    def __init__(self, folder: Path) -> None:
        self.run, self.run_id = run_file.open_run_folder(folder / "run")
        self.live = folder / "live"
        self.live.mkdir(mode=0o700)
        self.rings: dict[int, SummaryRing] = {}

    def hand(self, rank: int, *steps: int, **document: Any) -> None:
        if rank not in self.rings:
            (self.live / f"h-{rank}-1.live").touch()
            self.rings[rank] = SummaryRing(self.live / f"h-{rank}-1.sums")
        rows = b"".join(StageSummary(step, 1, 1, 10, 20_010, 20_000, None, 20_000).pack() for step in steps)
        who = {"rank": rank, "role": "actor", "pid": 9, "world_size": 2}
        self.rings[rank].put(rows, {"stages": ["reward"], "step": None, "who": who, **document})

    def agent(self) -> Agent:
        return Agent(self.run, self.run_id, self.live, judges=False)

    def batches(self) -> list[Batch]:
        files = batches.files_in(self.run)
        return [batch for file in files for batch in BatchFile(file, self.run_id).read()]

    def steps(self) -> list[tuple[int, int]]:
        """Rank and step of each row that was passed on."""
        rows, ranks = [], dict[tuple[str, int], int]()
        for batch in self.batches():
            ranks.update({(batch.sender, of.number): of.rank or 0 for of in batch.processes()})
            for _, number, part in batch.parts:
                for at in range(0, len(part), 40):
                    rows.append((ranks[batch.sender, number], int.from_bytes(part[at : at + 4], "little")))
        return rows


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(module, "EVERY_S", 0.0)
    return Place(tmp_path)


@pytest.fixture
def agent(place: Place) -> Agent:
    return place.agent()


def test_what_is_new_of_all_processes_goes_on_in_one_batch_and_only_once(place: Place, agent: Agent) -> None:
    place.hand(0, 1, 2)
    place.hand(1, 1)
    agent.turn()
    agent.turn()
    place.hand(1, 2)
    agent.turn()

    first, second = place.batches()
    assert place.steps() == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert [process.rank for process in first.processes()] == [0, 1]
    assert list(second.processes()) == [], "who it is was said"
    assert (first.number, second.number) == (0, 1)
    mono, wall, half = first.clock or (0, 0, 0)
    assert abs(wall - mono - (time.time_ns() - time.monotonic_ns())) < half + 50_000_000
    assert (place.run / layout.SUMMARIES).stat().st_mode & 0o777 == 0o700
    assert batches.files_in(place.run)[0].stat().st_mode & 0o777 == 0o640


def test_who_outlives_thousands_shares_its_number_with_none_of_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number is that of one process at a time: else the rows of rank 0 would be those of a worker of another rank."""
    monkeypatch.setattr(batches, "PROCESSES_AT_MOST", 3)
    agent = place.agent()
    for rank in range(1, 9):
        place.hand(0, rank)
        place.hand(rank, rank)
        agent.turn()
        place.hand(rank, end=True)
        agent.turn()

    assert sorted(place.steps()) == [(0, step) for step in range(1, 9)] + [(rank, rank) for rank in range(1, 9)]


def test_without_anything_new_the_run_folder_is_not_touched(
    place: Place, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.hand(0, 1)
    agent.turn()
    calls: list[str] = []
    for name in ("open", "stat", "lstat", "replace", "listdir"):
        monkeypatch.setattr(os, name, _counted(getattr(os, name), calls, str(place.run)))
    for step in range(2, 20):
        place.hand(0, step)
        agent.turn()

    assert calls == [], "not even with something new: its file stays open"
    assert len(place.steps()) == 19


class TestTheClockOfTheDisk:
    """What it stamps files by, against this host's own."""

    @pytest.mark.parametrize(("off_ns", "is_off"), [(0, False), (10_000_000, False), (10**9, True), (-(10**9), True)])
    def test_times_are_by_it_where_the_hosts_own_clock_is_wrong(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, off_ns: int, is_off: bool
    ) -> None:
        wall_ns = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + off_ns)
        place.hand(0, 1)
        place.agent().turn()

        (batch,) = place.batches()
        mono, wall, _ = batch.clock or (0, 0, 0)
        assert abs(wall - mono - (wall_ns() - time.monotonic_ns())) < 50_000_000
        assert batch.head["is_off"] is is_off
        assert ("off that of the run folder's disk" in caplog.text) is is_off

    def test_a_disk_that_answers_slowly_at_first_is_asked_again_and_the_error_says_so_meanwhile(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wall_ns, stamped_ns, slow_s = time.time_ns, KeptOpen.stamped_ns, [0.4, 0.4]

        def slowly(self: KeptOpen, path: Path) -> int:
            time.sleep(slow_s.pop() if slow_s else 0.0)
            return stamped_ns(self, path)

        monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + 100_000_000)
        monkeypatch.setattr(KeptOpen, "stamped_ns", slowly)
        monkeypatch.setattr(module, "_COMPARES_AGAIN_S", 0.0)
        agent = place.agent()
        for step in (1, 2):
            place.hand(0, step)
            agent.turn()

        first, second = place.batches()
        (mono, wall, error), (mono_after, wall_after, _) = (batch.clock or (0, 0, 0) for batch in (first, second))
        right_ns = wall_ns() - time.monotonic_ns()
        assert 50_000_000 < wall - mono - right_ns < error, "not put right yet"
        assert abs(wall_after - mono_after - right_ns) < 50_000_000
        assert second.head["is_off"] is True

    def test_a_wall_clock_that_is_set_is_compared_at_once(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        wall_ns, agent = time.time_ns, place.agent()
        for step, off_ns in enumerate((0, 10**9), 1):
            monkeypatch.setattr(time, "time_ns", lambda off_ns=off_ns: wall_ns() + off_ns)
            place.hand(0, step)
            agent.turn()

        before, after = place.batches()
        mono, wall, _ = after.clock or (0, 0, 0)
        assert abs(wall - mono - (wall_ns() - time.monotonic_ns())) < 50_000_000
        assert (before.head["is_off"], after.head["is_off"]) == (False, True)

    def test_a_wall_clock_that_drifts_is_told_of_a_few_times_and_put_right_each_time(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        wall_ns, log, off_ns = time.time_ns, BatchLog(place.run, place.live), 0
        for look in range(60):
            off_ns = look * 10**9
            monkeypatch.setattr(time, "time_ns", lambda off_ns=off_ns: wall_ns() + off_ns)
            log.look_at_clock()

        assert abs(log.ahead_ns[0] + off_ns) < 10**9
        assert 0 < len(caplog.records) < 8

    def test_of_a_disk_that_stamps_to_whole_seconds_it_is_not_known(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(KeptOpen, "stamped_ns", lambda self, path: time.time_ns() // 10**9 * 10**9)
        place.hand(0, 1)
        place.agent().turn()

        assert place.batches()[0].head["is_off"] is False

    def test_where_the_disk_does_not_take_its_file_it_is_not_known_and_nothing_is_said(self, place: Place) -> None:
        log = BatchLog(place.run / "gone", place.live)
        log.look_at_clock()

        assert log.ahead_ns == (0, 0)


def _counted(call: Any, calls: list[str], run: str) -> Any:
    def counting(path: Any, *args: Any, **kwargs: Any) -> Any:
        if str(path).startswith(run):
            calls.append(str(path))
        return call(path, *args, **kwargs)

    return counting


@pytest.mark.parametrize("is_killed", [False, True])
def test_who_has_ended_is_said_to_have_and_cleared_away(place: Place, agent: Agent, is_killed: bool) -> None:
    place.hand(0, 1)
    agent.turn()
    place.hand(0, 2, end=not is_killed)
    (place.live / "h-0-1.live").unlink()
    agent.turn()
    agent.last(is_alone=True)

    assert place.steps() == [(0, 1), (0, 2)]
    assert [batch.numbers("ended") for batch in place.batches()] == [[], [0], []]
    assert [batch.has_ended for batch in place.batches()] == [False, False, True]
    assert list(place.live.glob("*.sums")) == []


def test_the_next_keeper_goes_on_where_the_one_before_was(place: Place) -> None:
    first = place.agent()
    place.hand(0, 1, 2)
    first.turn()
    place.hand(0, 3)
    second = place.agent()
    second.turn()
    place.hand(0, 4)
    second.turn()

    assert place.steps() == [(0, 1), (0, 2), (0, 3), (0, 4)]
    senders = [batch.sender for batch in place.batches()]
    assert senders[0] != senders[1] == senders[2]


def test_what_another_keeper_passes_on_is_left_to_it(place: Place) -> None:
    """Containers with names of their own may share memory: what both passed on came late, and was called missing."""
    place.hand(0, 1)
    (place.live / f"{layout.KEEPER}h.life").touch()
    place.agent().turn()
    before = place.steps()
    (place.live / f"{layout.KEEPER}h.life").unlink()
    place.agent().turn()

    assert (before, place.steps()) == ([], [(0, 1)])


def test_whoever_begins_to_read_in_the_middle_learns_who_is_who(place: Place, agent: Agent) -> None:
    for step in range(80):
        place.hand(0, step)
        agent.turn()

    announced = [len(list(batch.processes())) for batch in place.batches()]
    assert announced[0] == 1
    assert sum(announced[1:]) == 1


def test_whoever_begins_to_read_in_the_middle_of_large_batches_learns_it_as_well(place: Place, agent: Agent) -> None:
    for first in range(0, 20_000, 500):
        place.hand(0, *range(first, first + 500))
        agent.turn()
    ends = list(itertools.accumulate(batch.size_bytes for batch in place.batches()))
    announced = [end for end, batch in zip(ends, place.batches()) if list(batch.processes())]

    assert ends[-1] > 3 * READ_AGAIN_BYTES
    apart = [end - before for before, end in zip(announced, [*announced[1:], ends[-1]])]
    assert max(apart) < READ_AGAIN_BYTES / 2


def test_what_the_disk_does_not_take_is_written_when_it_does(
    place: Place, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.hand(0, 1)
    agent.turn()
    append = batch_log.KeptOpen.append

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(batch_log.KeptOpen, "append", full)
    monkeypatch.setattr(module.faults, "note_fault", lambda site, exc: None)
    for step in (2, 3):
        place.hand(0, step)
        agent.turn()
    monkeypatch.setattr(batch_log.KeptOpen, "append", append)
    agent.turn()

    assert [step for _, step in place.steps()] == [1, 2, 3], "with nothing new"


def test_of_what_waits_for_a_disk_the_oldest_goes_first_and_is_counted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = BatchLog(place.run, place.live)
    monkeypatch.setattr(batch_log, "WAITING_BYTES", 100)
    monkeypatch.setattr(batch_log.KeptOpen, "append", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    for _ in range(10):
        with pytest.raises(OSError, match="full"):
            log.append(bytes(30))

    assert log.dropped == 7

    blocks: list[bytes] = []
    monkeypatch.setattr(batch_log.KeptOpen, "append", lambda self, path, block: blocks.append(block) or len(block))
    log.append()

    assert blocks == [bytes(90)]


def test_a_file_never_grows_beyond_its_bound_and_the_newest_stays(place: Place) -> None:
    log = BatchLog(place.run, place.live, file_bytes=5000)
    frames = [batches.encode_batch({"run": place.run_id, "host": "h", "number": number}, []) for number in range(300)]
    for frame in frames:
        log.append(frame)
    sizes = [file.stat().st_size for file in (place.run / layout.SUMMARIES).iterdir()]

    assert len(sizes) == 2
    assert max(sizes) <= 5000
    numbers = [batch.number for batch in place.batches()]
    assert numbers == list(range(numbers[0] or 0, 300))
    assert len(numbers) > 40


def test_a_run_that_somebody_has_removed_is_not_made_anew(place: Place) -> None:
    import shutil

    agent = place.agent()
    place.hand(0, 1)
    agent.turn()
    shutil.rmtree(place.run)
    place.hand(0, 2)
    agent.turn()

    assert not place.run.exists()


def test_the_figures_of_the_run_are_passed_on_to_the_hosts_shared_memory(place: Place, agent: Agent) -> None:
    (place.run / layout.VERDICTS).mkdir()
    figures = Figures(7, {"mstxkit/wait_ratio": 0.25}, 3, 1)
    (place.run / layout.VERDICTS / layout.FIGURES).write_bytes(figures.as_json(place.run_id))
    agent._looks._due_s = 0.0
    agent.turn()
    agent.turn()

    assert settings_file.read_figures(place.live / layout.FIGURES_HERE, place.run_id) == figures
    assert [batch.settings for batch in place.batches()] == [3], "acknowledged, with nothing else to say"


def test_changed_settings_are_acknowledged_by_a_batch_of_their_own(place: Place, agent: Agent) -> None:
    settings_file.change_settings(place.run, place.run_id, {"slow_rank.effect": 0.15})
    after = settings_file.change_settings(place.run, place.run_id, {"gates.warm_up": 3})
    for _ in range(2):
        agent._looks._due_s = 0.0
        agent.turn()

    assert [batch.settings for batch in place.batches()] == [after.version] == [2]
    assert after.values == {"slow_rank.effect": 0.15, "gates.warm_up": 3}


@pytest.mark.parametrize(
    "document", [{"stages": {"a": 1}}, {"who": [1]}, {"stages": [{}, None, 3]}, {"who": {"rank": -3}}]
)
def test_a_process_that_says_nonsense_of_itself_is_passed_on_as_far_as_it_can_be(
    place: Place, agent: Agent, document: dict[str, Any]
) -> None:
    place.hand(0, 1, **document)
    place.hand(1, 1)
    agent.turn()

    assert len(place.steps()) == 2


def test_more_rows_than_a_batch_may_hold_go_on_in_several(place: Place, agent: Agent) -> None:
    for rank in range(80):
        place.hand(rank, *range(600))
    agent.turn()

    assert len(place.steps()) == 80 * 600
    assert len(place.batches()) >= 2


def test_a_frozen_disk_holds_up_only_the_thread_that_writes(
    frozen_disk: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import subprocess

    monkeypatch.setattr(module, "EVERY_S", 0.0)
    place = Place(tmp_path)
    place.run, place.run_id = run_file.open_run_folder(frozen_disk / "run")
    agent = place.agent()
    place.hand(0, 1)
    agent.turn()
    subprocess.run(["fsfreeze", "-f", frozen_disk], check=True)
    place.hand(0, 2)
    writing = threading.Thread(target=agent.turn, daemon=True)
    writing.start()
    while not agent._working.locked():
        time.sleep(0.01)
    agent.turn()
    agent.last(is_alone=True)
    is_held_up = writing.is_alive()
    subprocess.run(["fsfreeze", "-u", frozen_disk], check=True)
    writing.join(10)

    assert is_held_up, "and whoever else came went on at once"
    assert [step for _, step in place.steps()] == [1, 2]


def test_a_host_has_one_name_for_all_of_its_files(place: Place) -> None:
    names = [layout.name_of_host(place.live, suffix) for suffix in (layout.NOW_SUFFIX, layout.SUMMARIES_SUFFIX)]

    assert names[0].rpartition(".")[0] == names[1].rpartition(".")[0]
