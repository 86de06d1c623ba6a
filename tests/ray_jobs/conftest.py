"""Fixtures of the Ray tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest
from builders import ray_jobs, selection, soak
from builders.ray_jobs import Start

HERE = Path(__file__).parent
FILES_A_DAY = 7


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Most files start a Ray for each of their jobs: some files a day, and of the older Ray, which does the same in
    each, one.
    """
    files = sorted({item.path for item in items if item.path.parent == HERE})
    if len(files) == 1:
        return
    chosen = soak.sample(files, 1 if ray_jobs.is_older() else FILES_A_DAY)
    others = [item for item in items if item.path.parent == HERE and item.path not in chosen]
    selection.leave_out(config, items, others)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start a job: the driver's name, its arguments, variables of its environment. It must end well."""

    def run(name: str, *arguments: str, **variables: str) -> ray_jobs.Job:
        job = ray_jobs.run_driver(name, tmp_path / "run", *arguments, **variables)
        assert job.code == 0, job.output
        return job

    return run


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The address of a cluster that drivers may join: its workers inherit nothing from a driver's environment."""
    pytest.importorskip("ray")
    command = [sys.executable, str(ray_jobs.HERE / "drivers" / "cluster.py")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": None}
    with subprocess.Popen(command, env=ray_jobs.environment(), text=True, **pipes) as process:  # type: ignore[call-overload]
        address = process.stdout.readline().strip()
        assert address, "the cluster did not start"
        yield address
        process.stdin.close()
        process.wait(60)


@pytest.fixture
def join(start: Start, cluster: str) -> Start:
    """Start a job on that cluster."""

    def run(name: str, *arguments: str, **variables: str) -> ray_jobs.Job:
        return start(name, *arguments, RAY_ADDRESS=cluster, **variables)

    return run
