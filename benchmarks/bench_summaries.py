"""What it costs to sum up a stage and to hand over a step.

Of the training thread: all that a stage takes beyond a plain range, which holds the sums that are handed over and more;
the same where its range says its work; and a step, with what it takes to wake the sealer. Of the sealer's thread: CPU
time a step of ten stages, each handed over by itself; and what our threads take more at ten such steps a second.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any, Callable

from .bench_control import spent_by_threads
from .harness import NATIVE, TSC, Rounds, Row, spread
from .recording import Recording, recording

PROCESSES = 3
VARIANTS = {"native": {**NATIVE, **TSC}}
AT_MOST, STAGES, STEPS = 20_000, 10, 300
STEPS_A_SECOND, MEASURED_S, TURNS = 10, 3.0, 5
_WORK = "tokens=4096, responses=8, longest_response=900"


def measure(variant: str) -> list[Row]:
    """ns and bytes; in units of `with` over a C object that does nothing; percent of a core."""
    with recording(native=True, clock="tsc") as session:
        rounds = _timed(session)
        rows = [
            _beyond(rounds, "native_stage_ns", "stage", "plain"),
            _beyond(rounds, "native_stage_with_work_ns", "stage with work", "plain with work"),
            _beyond(rounds, "native_step_ns", "step", "stage"),
            rounds.row("summaries.native_stage", "stage"),
            *_handed_over(session),
            _background(session),
        ]
    return rows


def _timed(session: Recording) -> Rounds:
    import mstxkit

    names = {"mstx_range": mstxkit.mstx_range, "stage": mstxkit.stage, "step": mstxkit.step}
    cases = {
        "plain": 'with mstx_range("summed"): pass',
        "stage": 'with stage("summed"): pass',
        "plain with work": f'with mstx_range("summed", {_WORK}): pass',
        "stage with work": f'with stage("summed", {_WORK}): pass',
        "step": 'step()\nwith stage("summed"): pass',
    }
    rounds = Rounds()
    for name, statement in cases.items():
        rounds.add(name, statement, names, after=session.drain, at_most=AT_MOST)
    return rounds.run()


def _beyond(rounds: Rounds, key: str, name: str, over: str) -> Row:
    ns = rounds.net(name, over)
    return Row(f"summaries.{key}", statistics.median(ns), "ns", spread(ns))


def _handed_over(session: Recording) -> list[Row]:
    """CPU time and bytes, with no other thread at it."""
    from mstxkit.recorder import current

    recorder: Any = current.recorder
    recorder.park()
    handing, taken, size = recorder.sealer.handing_over, [], 0
    take = session.engine.take_summaries
    for _ in range(STEPS):
        _step()
        began = time.thread_time_ns()
        handing.hand_over()
        taken.append((time.thread_time_ns() - began) / 1000)
        _step()
        size += len(take())
    recorder.resume()
    return [
        Row("summaries.native_sealer_us_a_step", statistics.median(taken), "us", spread(taken)),
        Row("summaries.native_bytes_a_stage", size / STEPS / STAGES, "bytes"),
    ]


def _step() -> None:
    import mstxkit

    _stages()
    mstxkit.step()


def _stages() -> None:
    import mstxkit

    for number in range(STAGES):
        with mstxkit.stage(f"stage {number}", tokens=number):
            pass


def _background(session: Recording) -> Row:
    """Percent of a core that our threads take more where steps are over than where one goes on with the same stages."""
    _step()
    time.sleep(1.5)
    more = []
    for _ in range(TURNS):
        moving, staying = _percent_of_threads(_step), _percent_of_threads(_stages)
        more.append(moving - staying)
    return Row("summaries.native_own_threads_more", statistics.median(more), "%", spread(more))


def _percent_of_threads(work: Callable[[], None]) -> float:
    before, began = spent_by_threads(os.getpid())[0], time.monotonic()
    while time.monotonic() < began + MEASURED_S:
        work()
        time.sleep(1 / STEPS_A_SECOND)
    return (spent_by_threads(os.getpid())[0] - before) / (time.monotonic() - began) / 1e7
