"""What a process and its children use, as the kernel says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Iterator

import pytest

from mstxkit.incidents import kernel
from mstxkit.incidents.kernel import Effort


@pytest.fixture
def computing() -> Iterator[int]:
    """A process that only computes."""
    with subprocess.Popen([sys.executable, "-S", "-c", "print(flush=True)\nwhile True: pass"], stdout=-1) as process:
        assert process.stdout is not None and process.stdout.readline()
        yield process.pid
        process.kill()


def test_a_thread_that_computes_runs_on(computing: int) -> None:
    earlier = kernel.measure_effort(computing)
    time.sleep(0.3)

    assert earlier.is_run_on(kernel.measure_effort(computing), 0.3)


def test_a_child_that_computes_counts_for_who_waits_for_it(computing: int) -> None:
    """On a busy host it may get next to no time."""
    assert computing in kernel.measure_effort(os.getpid()).running


@pytest.mark.parametrize(
    ("later", "why"),
    [({7: 200}, "it waits for the GIL, 5 ms each time"), ({8: 500}, "another one that does"), ({}, "none")],
)
def test_threads_that_are_only_awake_now_and_then_do_not_run_on(later: dict[int, int], why: str) -> None:
    assert not Effort(0.0, 0, {7: 100}).is_run_on(Effort(0.0, 0, later), 0.5), why
