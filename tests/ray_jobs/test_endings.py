"""How the workers of a Ray job end: with it, sealed into the run by its driver; or killed, with what they were in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from builders import lives, ray_jobs

import mstxkit
from mstxkit.reading.report import summary

pytestmark = [pytest.mark.daily(1), pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _with_ray() -> None:
    pytest.importorskip("ray")


def test_at_a_normal_end_all_is_sealed_and_nothing_is_wrong(tmp_path: Path) -> None:
    job = ray_jobs.run_driver("ends", tmp_path / "run", "well", collects=False)

    assert job.code == 0, job.output
    assert list((job.run / "live").iterdir()) == [], "copying the folder would lose nothing"
    endings = Counter((row["state"], row["ending"]) for row in job.processes())
    assert endings[("ended", None)] >= 1, "the driver; Ray lets a worker end by itself where it is quick enough"
    assert endings[("ended", None)] + endings[("left", "with the job")] == 4
    assert job.names() == {"actor_generate": 3}
    assert not summary.is_something_wrong(summary.summarise_run(mstxkit.open_run(job.run)))


def test_an_actor_that_died_is_named_and_the_others_left(tmp_path: Path) -> None:
    job = ray_jobs.run_driver("ends", tmp_path / "run", "dies", collects=False)
    report = summary.summarise_run(mstxkit.open_run(job.run))

    assert job.code == 1
    assert list((job.run / "live").iterdir()) == []
    (killed,) = lives.killed_of(report)
    assert [(opened["stage"], opened["step"]) for opened in killed["inside"]] == [("actor_generate", 3)]
    states = Counter(report["states"])
    assert (states["ended"] + states["left"], states["killed"]) == (3, 1), "Ray lets a quick worker end by itself"
    assert summary.is_something_wrong(report)
