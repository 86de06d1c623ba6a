"""The actor that judges, without Ray around it: what it is sent before it has read the run is judged with the rest."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from builders import handing_rank, lives

from mstxkit.cluster import ray_actor
from mstxkit.cluster.ray_actor import JobController
from mstxkit.judging import run_judge
from mstxkit.judging.controller import Controller
from mstxkit.store import batches, layout, run_file

RANKS, STEPS, A_BATCH, STEP_NS = 3, 200, 10, 50_000_000
Start = Callable[[], JobController]


class Host:
    """One that has handed over all of its steps: its batches, of which the first alone says who is who."""

    def __init__(self, run_id: str) -> None:
        self._run_id, self._ago_ns = run_id, 20 * 10**9
        self.frames = [self._frame(number) for number in range(STEPS // A_BATCH)]

    def _frame(self, number: int) -> bytes:
        first, stages = number * A_BATCH, handing_rank.STAGES
        came_ns = (first + A_BATCH) * STEP_NS - self._ago_ns
        who = [batches.HandingProcess(rank, f"p{rank}", rank, "actor", stages=stages) for rank in range(RANKS)]
        head = {
            "run": self._run_id, "host": "h", "boot": "b", "sender": "s", "number": number,
            "clock": [time.monotonic_ns() + came_ns, time.time_ns() + came_ns, 1000],
            "processes": [] if number else [process.as_json() for process in who], "goodbye": len(who) == 0,
        }  # fmt: skip
        steps = range(first, first + A_BATCH)
        return batches.encode_batch(
            head, [("stages", rank, b"".join(self._rows(step, rank) for step in steps)) for rank in range(RANKS)]
        )

    def _rows(self, step: int, rank: int) -> bytes:
        begin_ns = time.monotonic_ns() - self._ago_ns + step * STEP_NS
        return handing_rank.rows_of(step, rank, 1, begin_ns, STEP_NS)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run, _ = run_file.open_run_folder(tmp_path / "run")
    (run / layout.SUMMARIES).mkdir(mode=0o700)
    return run


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those that are judged, as they are."""
    seen: list[Any] = []
    monkeypatch.setattr(run_judge, "Controller", partial(Controller, on_step=seen.append))
    return seen


@pytest.fixture
def start(run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts an actor, which ends when nothing more comes."""
    ended: list[int] = []

    def end() -> None:
        ended.append(1)
        raise SystemExit  # as Ray would end its process

    monkeypatch.setattr(ray_actor, "_end_actor", end)
    started: list[JobController] = []

    def begin() -> JobController:
        started.append(JobController(str(run), run_file.id_of(run) or "", silence_s=2.0))
        return started[-1]

    yield begin
    assert lives.wait_until(lambda: len(ended) == len(started))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_a_controller_is_sent_before_it_has_read_who_is_who_is_judged_once_it_has(
    run: Path, start: Start, steps: list[Any]
) -> None:
    """It was killed, and hosts send again what it has not answered."""
    frames = Host(run_file.id_of(run) or "").frames
    (run / layout.SUMMARIES / "h-0.mxb").write_bytes(b"".join(frames[:-2]))
    actor = start()
    actor.take(b"".join(frames[5:]))
    with open(run / layout.SUMMARIES / "h-0.mxb", "ab") as stream:
        stream.write(b"".join(frames[-2:]))

    assert lives.wait_until(lambda: len(steps) == STEPS)
    assert [(step.step, len(step.members)) for step in steps] == [(step, RANKS) for step in range(STEPS)]
