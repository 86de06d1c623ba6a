"""`mstxkit compact --ray`: a task on each node of a real Ray turns the sealed files of its own host into Parquet."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from builders import ray_jobs
from builders.judged_runs import NOBODY, recorded, stage_times
from builders.run_files import BankFiles, ProcessFiles

pytest.importorskip("polars")
pytestmark = pytest.mark.ray

PROGRAM = """
import json, sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from mstxkit.reading.dataset import on_ray

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
cluster.add_node(num_cpus=1)
ray.init(address=cluster.address, log_to_driver=False)
done = on_ray.compact(Path(sys.argv[1]), remove=True)
print(json.dumps([done._asdict(), ray.is_initialized()]))
ray.shutdown()
cluster.shutdown()
"""


def test_each_node_turns_the_files_of_its_own_host_and_no_others(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(NOBODY, ranks=2, steps=10))
    elsewhere = ProcessFiles(run, 7, rank=7, host="elsewhere")
    elsewhere.seal(BankFiles().range("a", 0, 1_000, stage="a", own=True, step=0))

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(run)], env=ray_jobs.environment(), capture_output=True, text=True,
        timeout=200, check=False,
    )  # fmt: skip

    said = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else done.stderr[-3000:]
    assert said[0]["files"] == said[0]["removed"] == 2 and said[1] is True
    assert [file.name for file in (run / "sealed").iterdir()] == [f"{elsewhere.name}.0000.mxs"]
