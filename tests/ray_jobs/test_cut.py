"""A network that is cut between an agent and the controller, which is killed, and healed: training goes on, and then
verdicts come again.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from builders import soak
from builders.ray_jobs import Start

from mstxkit.store import layout, run_file, settings_file, verdicts

pytestmark = [pytest.mark.ray, pytest.mark.slow]
STEPS = 400  # a busy machine judges the first ones late, and the cut is to end long before the last


@pytest.fixture(autouse=True)
def _with_ray_and_networks() -> None:
    pytest.importorskip("ray")
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("needs root and the command ip, to make a network namespace")
    made = subprocess.run(["ip", "netns", "add", "mstx-may-i"], capture_output=True)
    subprocess.run(["ip", "netns", "del", "mstx-may-i"], capture_output=True)
    if made.returncode:
        pytest.skip("no network namespace can be made here")


@pytest.mark.skipif(not soak.is_soaking(), reason="in make soak: two nodes and a cable take a minute")
def test_while_the_network_is_cut_training_goes_on_and_when_it_is_healed_all_of_it_is_judged(start: Start) -> None:
    job = start("cut", str(STEPS), MSTXKIT_JUDGE="1")
    said = job.said
    figures = settings_file.read_figures(job.run / layout.VERDICTS / layout.FIGURES, run_file.id_of(job.run) or "")

    assert said["judges"] == 1, "and that one was killed while the network was cut"
    assert said["went_on"], "the worker behind the cut did forty steps meanwhile"
    assert said["done"] == [STEPS] * 4
    assert said["judged"] == STEPS - 1
    assert figures is not None
    assert figures.values["mstxkit/time_s/actor_generate/slowest_rank"] == 1, "all are in the last step"
    assert {verdict.rank for verdict in verdicts.read_verdicts(job.run) if verdict.is_blaming} == {1}
    assert [fault for faults in said["faults"] for fault in faults if fault != "cluster.ray"] == []
