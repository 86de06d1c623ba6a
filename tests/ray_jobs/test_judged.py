"""A Ray job is judged by one named actor: it starts by itself, takes nothing of the job, and outlives its driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.ray_jobs import Start

from mstxkit.store import verdicts

pytestmark = [pytest.mark.ray, pytest.mark.slow]
STEPS = 100


@pytest.fixture(autouse=True)
def _with_ray() -> None:
    pytest.importorskip("ray")


def blamed(run: Path) -> list[tuple[str, int | None, str | None]]:
    return [(verdict.kind, verdict.rank, verdict.stage) for verdict in verdicts.read(run) if verdict.is_blaming]


def test_the_slow_worker_of_several_nodes_is_named_by_one_actor_that_takes_no_resource(start: Start) -> None:
    job = start("judged", "plain", str(STEPS))
    said = job.said

    assert said["nodes"] == 2
    assert said["judged"] == STEPS - 1
    assert blamed(job.run) == [("compute", 1, "actor_generate")]
    (controller,) = said["controllers"]
    assert controller["name"] == said["name"]
    assert not controller["resources"]
    assert said["free"] == 2.5, "of four, what the workers leave"
    assert all(figures["mstxkit/time_s/actor_generate/slowest_rank"] == 1 for figures in said["figures"])
    assert said["own"]["mstxkit/verdicts"] == 1
    assert said["faults"] == [{}] * 4
    assert controller["pid"] not in {process["pid"] for process in job.processes()}, "it is no process of the run"


def test_a_controller_that_is_killed_comes_back_and_goes_on_where_it_was(start: Start) -> None:
    job = start("judged", "kill", str(3 * STEPS))
    said = job.said

    assert said["judged"] == 3 * STEPS - 1
    assert len(said["controllers"]) == 1
    assert blamed(job.run) == [("compute", 1, "actor_generate")], "one verdict, not one of each life"
    assert [fault for faults in said["faults"] for fault in faults if fault != "cluster.ray"] == []


def test_a_driver_that_is_started_again_finds_the_same_controller(join: Start) -> None:
    first = join("judged", "plain", str(STEPS))
    second = join("judged", "plain", str(STEPS))

    assert first.run == second.run
    assert first.said["controllers"] == second.said["controllers"], "of one pid"
    assert second.said["judged"] == STEPS - 1
