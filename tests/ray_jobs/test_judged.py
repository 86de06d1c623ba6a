"""A Ray job is judged by one named actor: it starts by itself, takes nothing of the job, and outlives its driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from builders import ray_jobs, soak
from builders.ray_jobs import Start

from mstxkit.store import verdicts

pytestmark = [pytest.mark.daily(3), pytest.mark.ray, pytest.mark.slow]
STEPS = 100
JUDGED = {"MSTXKIT_JUDGE": "1"}


@pytest.fixture(autouse=True)
def _with_ray() -> None:
    pytest.importorskip("ray")


def blamed(run: Path) -> list[tuple[str, int | None, str | None]]:
    return [
        (verdict.kind, verdict.rank, verdict.stage) for verdict in verdicts.read_verdicts(run) if verdict.is_blaming
    ]


def test_the_slow_worker_of_several_nodes_is_named_by_one_actor_also_where_that_is_killed_on_the_way(
    start: Start,
) -> None:
    job = start("judged", "kill", str(2 * STEPS), **JUDGED)
    said = job.said

    assert said["nodes"] == 2
    assert said["judged"] == 2 * STEPS - 1
    assert blamed(job.run) == [("compute", 1, "actor_generate")], "one verdict, not one of each life"
    (controller,) = said["controllers"]
    assert controller["name"] == said["name"]
    assert said["free"] == 2.5, "of four, what the workers leave"
    assert all(figures["mstxkit/time_s/actor_generate/slowest_rank"] == 1 for figures in said["figures"])
    assert said["own"]["mstxkit/verdicts"] == 1
    assert [fault for faults in said["faults"] for fault in faults if fault != "cluster.ray"] == []
    assert controller["pid"] not in {process["pid"] for process in job.processes()}, "it is no process of the run"


@pytest.mark.skipif(
    not soak.is_soaking(), reason="in make soak: tests/cluster/test_job_trouble.py shows it without Ray"
)
def test_an_agent_that_is_killed_and_workers_and_nodes_that_join_are_judged_with_the_rest(start: Start) -> None:
    job = start("churn", str(5 * STEPS), **JUDGED)
    said = job.said

    assert said["killed"] in (2, 3), "of the host that is not the driver's"
    assert said["went_on"], "nobody waits for who is gone"
    assert said["done"] == [5 * STEPS] * 5
    assert said["judged"] == 5 * STEPS - 1
    assert said["controllers"] == 1
    assert blamed(job.run) == [("compute", 1, "actor_generate")]
    assert [fault for faults in said["faults"] for fault in faults if fault != "cluster.ray"] == []


def test_a_driver_that_is_started_again_finds_the_same_controller(join: Start) -> None:
    first = join("judged", "plain", str(STEPS), **JUDGED)
    second = join("judged", "plain", str(STEPS), **JUDGED)

    assert first.run == second.run
    assert first.said["controllers"] == second.said["controllers"], "of one pid"
    assert second.said["judged"] == STEPS - 1


def test_a_controller_ends_for_good_once_all_hosts_have_said_goodbye(start: Start) -> None:
    assert start("judge_ends", **JUDGED).said == {"answered": True, "is_gone": True}


def test_the_controller_acts_where_the_driver_alone_has_said_that_verdicts_may(start: Start) -> None:
    said = start("acting", **JUDGED).said

    verdict = said["verdict"]
    assert (verdict["kind"], verdict["rank"], verdict["stage"]) == ("compute", 1, "actor_generate")
    if said["can"]:
        assert said["states"] == {"0": "done", "1": "done"}
    else:
        assert "no profiler can record there" in verdict["no_request"], "the workers have no torch"


@pytest.mark.skipif(not soak.is_soaking(), reason="in make soak: the tests above show the same")
def test_the_example_of_several_nodes_finds_its_slow_worker() -> None:
    command = [sys.executable, str(ray_jobs.ROOT / "examples" / "06_ray_cluster.py")]
    done = subprocess.run(command, env=ray_jobs.environment(**JUDGED), capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Verdict: rank 2 actor computes more slowly than the others in actor_generate" in done.stdout


def test_as_ray_ends_with_the_interpreter_nobody_begins_to_call_it(start: Start) -> None:
    """Who becomes its host's agent as the others end does: a call without a core worker ends the process with 1."""
    assert start("late_link", MSTXKIT_JUDGE="0").said == {"called": False}
