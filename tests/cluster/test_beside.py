"""Who starts the process that judges, and when another one: rank 0's host, and once that is gone any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from mstxkit.cluster import beside as module
from mstxkit.cluster.beside import Beside
from mstxkit.host import detached, life
from mstxkit.store import job_file, judge_lock, metrics_setting, run_file
from mstxkit.store.batches import HandingProcess
from mstxkit.store.job_file import JobState

FIRST, OTHER = (HandingProcess(0, "a", 0, world_size=8),), (HandingProcess(0, "b", 3, world_size=8),)


class Host:
    """One that considers starting a judge, and what it has started."""

    def __init__(self, run: Path, run_id: str, started: list[str]) -> None:
        self.run, self._run_id, self._started = run, run_id, started
        self._beside, self._batches = Beside(run, run_id), 0

    def is_told_of(self, metrics: str) -> None:
        self._beside = Beside(self.run, self._run_id, metrics)

    def looks(self, processes: tuple[HandingProcess, ...], hands_over: bool = True) -> int:
        """How many it has started by then."""
        self._batches += hands_over
        self._beside.consider(processes, self._batches)
        return len(self._started)

    def judge_says(self, number: int) -> None:
        job_file.write_state(self.run, self._run_id, JobState(written_ns=number))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    for name in ("_AFTER_S", "_AGAIN_AFTER_S", "_SILENT_AFTER_S", "_LATER_BY_S"):
        monkeypatch.setattr(module, name, 0.0)
    started: list[str] = []
    monkeypatch.setattr(detached, "start_module", lambda module, *words: started.append(module))
    run, run_id = run_file.open_run_folder(tmp_path / "run")
    (run / "verdicts").mkdir()
    return Host(run, run_id, started)


def locks_cannot_be_had(*_: Any) -> bool:
    raise OSError("Function not implemented")


def test_rank_0_s_host_starts_one_and_another_as_soon_as_none_holds_the_lock(host: Host) -> None:
    first = host.looks(FIRST)

    assert (first, host.looks(FIRST)) == (1, 2)


@pytest.mark.parametrize(
    ("metrics", "count"),
    [("127.0.0.1:0", 1), ("textfile", 1), ("otlp:http://collector:4318", 1), ("off", 0), (None, 0)],
)
@pytest.mark.parametrize("alone", [HandingProcess(0, "a", 0, world_size=1), HandingProcess(0, "a")])
def test_who_is_alone_has_a_judge_where_figures_are_asked_for(
    host: Host, alone: HandingProcess, metrics: str | None, count: int
) -> None:
    """Nobody else opens a page, a file or a way to a collector."""
    host.is_told_of(metrics_setting.as_word(metrics, 6e9, 1e14))

    assert host.looks((alone,)) == count


def test_one_of_several_ranks_has_none_for_figures_alone(host: Host) -> None:
    host.is_told_of(metrics_setting.as_word("textfile", None, None))

    assert host.looks(OTHER) == 0


def test_another_host_starts_one_once_nothing_is_heard_of_the_judge_any_more(host: Host) -> None:
    """Rank 0 has gone, its host's keeper too, and then the judge: nobody else would."""
    host.judge_says(1)
    counts = [host.looks(OTHER), host.looks(OTHER, hands_over=False), host.looks(OTHER)]

    assert counts == [0, 0, 1], "while it hands over what nobody judges"


def test_as_long_as_the_judge_says_something_no_other_host_starts_one(host: Host) -> None:
    for number in range(5):
        host.judge_says(number)
        assert host.looks(OTHER) == 0


def test_a_job_that_never_had_a_judge_is_given_none_by_hosts_without_rank_0(host: Host) -> None:
    """It may not be wanted, or each host has a run folder of its own."""
    assert [host.looks(OTHER) for _ in range(4)] == [0] * 4


def test_without_locks_no_second_one_is_started_beside_one_that_judges(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a Lustre that is mounted without them."""
    judge_lock_file = judge_lock.take_lock(host.run)
    assert judge_lock_file is not None
    monkeypatch.setattr(life, "_find_holder", locks_cannot_be_had)
    while_it_judges = []
    for number in range(5):
        host.judge_says(number)
        while_it_judges.append(host.looks(FIRST))
    counts = [host.looks(FIRST) for _ in range(2)]

    assert while_it_judges == [1] * 5
    assert counts[0] == 2, "it says nothing any more"
