"""`mstxkit collect --compact --ray`: a task on each node of a real Ray turns its host's sealed files into Parquet."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from builders import ray_jobs
from builders.judged_runs import NOBODY, recorded, stage_times
from builders.run_files import BankFiles, ProcessFiles

from mstxkit import open_run

pytest.importorskip("polars")
pytestmark = [pytest.mark.daily(1), pytest.mark.ray]

PROGRAM = """
import json, sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from mstxkit.reading.dataset import on_ray

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
cluster.add_node(num_cpus=1)
ray.init(address=cluster.address, log_to_driver=False)
done = on_ray.compact_nodes(Path(sys.argv[1]), remove=True)
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


COMMAND = """
import json, os, subprocess, sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
cluster.add_node(num_cpus=1)
os.environ["RAY_ADDRESS"] = cluster.address
words = [sys.executable, "-m", "mstxkit", "collect", sys.argv[1], "--compact", "--ray", "--remove", "--json"]
first, again = (subprocess.run(words, capture_output=True, text=True) for _ in range(2))
cluster.shutdown()
print(json.dumps([[done.returncode, done.stdout, done.stderr] for done in (first, again)]))
"""


def test_the_command_turns_all_files_and_all_tables_say_the_same(tmp_path: Path) -> None:
    """In a cluster that runs already; what it prints is one object, and nothing of Ray's."""
    run = recorded(tmp_path / "run", stage_times(NOBODY, ranks=2, steps=10))
    before = open_run(run)
    ranges, stages = before.ranges(), before.stages()

    done = subprocess.run(
        [sys.executable, "-c", COMMAND, str(run)], env=ray_jobs.environment(), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:]
    first, again = json.loads(done.stdout.splitlines()[-1])
    assert [first[0], again[0]] == [0, 0], (first, again)
    assert [json.loads(first[1])["compacted"][name] for name in ("files", "removed", "left")] == [2, 2, 0]
    assert json.loads(again[1])["compacted"]["files"] == 0
    assert open_run(run).ranges().equals(ranges) and open_run(run).stages().equals(stages)
