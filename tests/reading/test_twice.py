"""A folder into which two jobs record at once, and steps that are counted anew: nobody is judged by the mixture,
and the report says what to do.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Iterator

import pytest
from builders import lives

pytest.importorskip("polars")

from mstxkit.reading import judged
from mstxkit.reading.report import summary
from mstxkit.reading.run import open_run

RANK = """
import mstxkit, sys
with mstxkit.capture(sys.argv[1]):
    for number in range(20):
        mstxkit.step(number)
        with mstxkit.stage("actor_generate"):
            pass
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(judged, "_TOGETHER_FROM_NS", 1_000_000_000)
    with lives.own_run(tmp_path) as folder:
        yield folder


EPOCHS = """
import mstxkit, sys
with mstxkit.capture(sys.argv[1]):
    for number in [*range(25), *range(int(sys.argv[2]), 25)]:
        mstxkit.step(number)
        with mstxkit.stage("actor_generate"):
            pass
"""


def record(run: Path, *ranks: tuple[int, str]) -> None:
    """Processes of these ranks and roles, all at once for longer than a second."""
    started = [lives.start(RANK, run, RANK=str(rank), WORLD_SIZE="2", MSTXKIT_ROLE=role) for rank, role in ranks]
    for process in started:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(1.5)
    for process in started:
        assert lives.finished(process)[0] == 0


def test_two_jobs_at_once_in_one_folder_are_not_judged_as_one(run: Path) -> None:
    record(run, (0, ""), (1, ""), (0, ""), (1, ""))
    judgement = judged.of_run(open_run(run).roles)
    said = summary.summarise_run(open_run(run))["headline"]

    assert judged.ranks_there_twice(open_run(run).processes()) == [0, 1]
    assert (judgement.by, judgement.why_not) == (judged.NOBODY, judged.TWICE)
    assert said["words"].startswith("not judged: the same ranks are there twice at once")
    assert said["advice"].startswith("give each of two jobs a run folder of its own (MSTXKIT_RUN)")


def test_ranks_that_are_started_again_are_not_there_twice(run: Path) -> None:
    record(run, (0, ""), (1, ""))
    record(run, (0, ""), (1, ""))

    assert judged.ranks_there_twice(open_run(run).processes()) == []


def test_equal_ranks_of_two_roles_are_not_there_twice(run: Path) -> None:
    record(run, (0, "actor"), (0, "rollout"))

    assert judged.ranks_there_twice(open_run(run).processes()) == []
    assert judged.of_run(open_run(run).roles).why_not == judged.NO_PEER


@pytest.mark.parametrize(("again_from", "is_anew"), [(0, True), (20, False)], ids=["an epoch", "steps that overlap"])
def test_steps_of_one_number_are_not_judged_as_one_where_they_are_counted_anew(
    run: Path, again_from: int, is_anew: bool
) -> None:
    """By this reader; who judges the job while it runs tells them apart."""
    ranks = [
        lives.start(EPOCHS, run, str(again_from), RANK=str(rank), WORLD_SIZE="2", MSTXKIT_JUDGE="0") for rank in (0, 1)
    ]
    assert [lives.finished(process)[0] for process in ranks] == [0, 0]
    judgement = judged.of_run(open_run(run).roles)
    said = summary.summarise_run(open_run(run))["headline"]

    assert judged.are_steps_there_twice(open_run(run).files.stage_rows) is is_anew
    assert (judgement.why_not == judged.ANEW) is is_anew
    assert said["words"].startswith("not judged: steps are counted from the beginning again") is is_anew
    assert not is_anew or said["advice"].startswith("count on")
