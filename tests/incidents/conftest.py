"""Jobs that hang or die, started for one test and ended with it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Iterator

import pytest
from builders.hanging import Job, Start


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    jobs: list[Job] = []

    def started(*deeds: str, **options: Any) -> Job:
        jobs.append(Job(options.pop("run", tmp_path / "run"), *deeds, **options))
        return jobs[-1]

    yield started
    for job in jobs:
        job.end()
    for lock in (lock for job in jobs for lock in job.locks):  # the run's disk may be gone by now
        shutil.rmtree(lock.parent, ignore_errors=True)
