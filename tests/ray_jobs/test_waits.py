"""A controller on a real Ray job: what it waits for is no work, and the report has what its workers did meanwhile."""

from __future__ import annotations

import io
from typing import Any

import pytest
from builders import ray_jobs

import mstxkit

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> ray_jobs.Job:
    pytest.importorskip("ray")
    job = ray_jobs.run_driver("waits", tmp_path_factory.mktemp("waits") / "run")
    assert job.code == 0, job.output
    return job


def summary_of(job: ray_jobs.Job) -> dict[str, Any]:
    from mstxkit.reading.report.summary import summarise_run

    return summarise_run(mstxkit.open_run(job.run))


def test_what_it_waits_for_is_the_drivers_and_no_ranks(job: ray_jobs.Job) -> None:
    rows = [row for row in mstxkit.open_run(job.run).stages().to_dicts() if row["pid"] == job.said["driver"]]

    assert [(row["stage"], row["count"], row["rank"], row["part"], row["waits_for"]) for row in rows] == [
        ("actor_generate", 1, None, "driver", "workers"),
        ("compute_advantage", 1, None, "driver", None),
        ("train_step", 1, None, "driver", None),
        ("actor_generate", 1, None, "driver", "workers"),
        ("actor_update", 1, None, "driver", "workers"),
        ("compute_advantage", 1, None, "driver", None),
        ("train_step", 1, None, "driver", None),
    ]


def test_the_stage_holds_its_workers_only(job: ray_jobs.Job) -> None:
    summary = summary_of(job)
    generated = next(stage for stage in summary["stages"] if stage["stage"] == "actor_generate")

    assert sorted(row["rank"] for row in generated["ranks"]) == [0, 1]
    assert generated["count"] == 4
    assert "actor_update" not in {stage["stage"] for stage in summary["stages"]}


def test_all_that_workers_did_lies_inside_of_the_wait(job: ray_jobs.Job) -> None:
    """They share a clock: what one calls and waits for begins later and ends earlier."""
    wait = next(wait for wait in summary_of(job)["waits"] if wait["stage"] == "actor_generate")
    worked = job.ranges(name="ActorWorkerBase.generate_sequences")
    longest = max(sum(row["duration_ns"] for row in worked if row["rank"] == rank) for rank in range(2))

    assert (wait["controller"]["pid"], wait["steps"], wait["count"]) == (job.said["driver"], 2, 2)
    assert longest <= wait["busy_ns"] <= sum(row["duration_ns"] for row in worked)
    assert wait["busy_ns"] + wait["unaccounted_ns"] == wait["waited_ns"]
    assert wait["before_ns"] + wait["between_ns"] + wait["after_ns"] == wait["unaccounted_ns"]


def test_the_report_says_it_in_words(job: ray_jobs.Job) -> None:
    console = pytest.importorskip("rich.console")
    from mstxkit.reading.report.text import render_report

    out = io.StringIO()
    console.Console(file=out, width=200, highlight=False).print(render_report(summary_of(job)))

    assert "Driver and workers, a step" in out.getvalue()
    assert "actor_generate: driver waited " in out.getvalue() and ", workers were busy " in out.getvalue()
