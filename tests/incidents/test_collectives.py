"""Real ranks on gloo of which one is not where the others wait: the collective that misses it is named."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Iterator

import pytest
from builders.hanging import Job

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]
RANK = """
    import sys, time, mstxkit
    from mstxkit.recorder import rings, sealer
    # As on a busy host: it learns its rank as it is asked, no sooner, and reads its ring a while after it has answered.
    sealer.Sealer._look_at_itself, read_now = lambda self: None, rings.Rings.read_now
    rings.Rings.read_now = lambda self: (time.sleep(0.3), read_now(self))
    mstxkit.capture(sys.argv[1], rings=True)
    import torch, torch.distributed as dist
    rank = int(sys.argv[2])
    dist.init_process_group("gloo", init_method="file://" + sys.argv[4], rank=rank, world_size=2)
    for step in range(3):
        with mstxkit.at_step(step), mstxkit.stage("actor_update"):
            dist.all_reduce(torch.ones(1))
    print("ready", flush=True)
    sys.stdin.readline()
    with mstxkit.at_step(3), mstxkit.stage("actor_update"):
        if sys.argv[3] == "meets":
            with mstxkit.mstx_range("gradients"):
                dist.all_reduce(torch.ones(1))
    time.sleep(60)  # in no range
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    store, alone = str(tmp_path / "store"), {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "GLOO_SOCKET_IFNAME": "lo"}
    job = Job(tmp_path / "run", "meets", "stays away", word=store, program=RANK, **alone)
    yield job
    job.end()


def test_the_rank_that_has_not_entered_is_named_although_it_is_in_no_range(job: Job) -> None:
    incident = job.incident(30)

    assert (incident.kind, incident.rank) == ("hang", 1)
    assert "has not entered all_reduce 4 of group 0: entered by 0, missing 1" in incident.reason
    assert incident.waits_for == "rank 0 waits for rank 1 in actor_update"
    assert "gradients" in [group["range"] for group in incident.details["groups"]]
    (ring,) = (report["ring"] for report in job.reports() if report["rank"] == 0)
    assert [entry[:3] for entry in ring] == [["0", number, "all_reduce"] for number in (4, 3, 2, 1)]
    assert 0 < incident.time_ns - ring[0][3] < 60 * 10**9
