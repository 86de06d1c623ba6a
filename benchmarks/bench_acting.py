"""Caught in the act: from a verdict of the judge to the profiler armed at the named stage, on suspect and peer.

64 processes of one host are on duty under `capture(act="escalate")`, with their defaults; each enters a stage in every
step. A verdict on one of them is given to the judge at a random moment; the time ends when both ranks say in the
control folder that they are armed, for a step that they have agreed on. Then the verdict is withdrawn, which cancels
the request, and the next one comes. By wall time.

A part of the benchmark `incidents`: `python -m benchmarks --only incidents,acting`.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Iterator

from .harness import HERE, Row, spread

RANKS, VERDICTS, STEP_S = 64, 60, 2.0
STAGE, LOOKS_EVERY_S, WITHIN_S = "actor_update", 0.005, 120.0
VARIANTS: dict[str, dict[str, str]] = {"local": {}}


def measure(variant: str) -> list[Row]:
    """Seconds, from the judge hearing of a verdict to both ranks being armed."""
    with tempfile.TemporaryDirectory() as folder, _job(Path(folder)) as control:
        chance, holding = random.Random(1), list[Any]()
        run_judge = _run_judge(control, holding)
        taken = [_one_verdict(control, run_judge, holding, number, chance) for number in range(VERDICTS)]
    note = f"suspect and peer of {RANKS} ranks, {VERDICTS} verdicts, longest {max(taken):.2f} s"
    late = statistics.quantiles(taken, n=100, method="inclusive")[98]
    return [
        Row("incidents.verdict_armed_p50_s", statistics.median(taken), "s", spread(taken), note),
        Row("incidents.verdict_armed_p99_s", late, "s", spread(taken), note),
    ]


@contextmanager
def _job(folder: Path) -> Iterator[Any]:
    """Its control folder, once all ranks are on duty and know how long a step takes."""
    from mstxkit.store import run_file
    from mstxkit.store.control_folder import ControlFolder

    control = ControlFolder(*run_file.open_run_folder(folder / "run"))
    with ExitStack() as stack:
        for rank in range(RANKS):
            stack.enter_context(_process(folder, rank))
        _wait(lambda: _are_ready(control))
        yield control


@contextmanager
def _process(folder: Path, rank: int) -> Iterator[None]:
    host = folder / "host"
    host.mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.bench_acting", str(folder / "run"), str(host), str(rank)]
    env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "MSTXKIT_JUDGE": "0"}
    with subprocess.Popen(command, env=env, cwd=HERE.parent, stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            process.communicate()


def _are_ready(control: Any) -> bool:
    from mstxkit.store.report import Standing

    time.sleep(0.5)
    said = [Standing.read(ack.document) for ack in control.acknowledgements()]
    return len(said) == RANKS and all(STAGE in standing.stages for standing in said)


def _run_judge(control: Any, holding: list[Any]) -> Any:
    """The run's judge, by which those verdicts hold that are given here, and may ask as often as they like."""
    from mstxkit.judging.acting import Acting
    from mstxkit.judging.controller import Controller
    from mstxkit.judging.run_judge import RunJudge

    class OurVerdicts(Controller):
        acting = Acting(every_s=0.0, same_s=0.0, a_day=10_000, a_job=10_000)

        def standing(self) -> list[Any]:
            return holding

    run_judge = RunJudge(control.path.parent, control.run_id, "controller")
    run_judge.controller = OurVerdicts(str(control.path.parent))
    return run_judge


def _one_verdict(control: Any, run_judge: Any, holding: list[Any], number: int, chance: random.Random) -> float:
    """Seconds until suspect and peer say that they are armed; then it is withdrawn."""
    from mstxkit.store.verdicts import Verdict

    time.sleep(chance.uniform(0.5, 1.5))
    suspect = chance.randrange(RANKS)
    verdict = Verdict(f"{number:016x}", time.time_ns(), number, "compute", STAGE, suspect, impact_ratio=0.3)
    began = time.perf_counter()
    holding[:] = [verdict]
    (said,) = run_judge.look()
    assert said.request, said.no_request
    _wait(lambda: _states(control, said.request) == {"armed"})
    taken_s = time.perf_counter() - began
    holding.clear()
    run_judge._said(verdict._replace(withdrawn="seen"))
    run_judge.look()
    _wait(lambda: _states(control, said.request) == {"cancelled"})
    return taken_s


def _states(control: Any, id: str) -> set[str]:
    """What the ranks that are asked say."""
    from mstxkit.store import fate

    asked = next(each for each in fate.read_asked(control) if each.request.id == id)
    acks = [control.acknowledgement(rank) for rank in asked.request.ranks]
    states = {
        next((one["state"] for one in ack.document["reports"] if one["id"] == id and one["rank"] == ack.rank), "none")
        for ack in acks
    }
    assert not states & {"failed", "refused", "expired"}, states
    return states


def _wait(is_so: Any) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {WITHIN_S:.0f} s"
        time.sleep(LOOKS_EVERY_S)


def _rank(run: str, host: str, rank: int) -> None:
    """One rank: step after step, until its standard input is closed."""
    import select

    import mstxkit
    from mstxkit.escalation.duty import duty

    duty.backends.find_profiler = lambda: ("torch", {})  # none is loaded: nothing is recorded, armed is where it ends
    with mstxkit.capture(run, live_folder=host, act="escalate"):
        step = 0
        while not select.select([sys.stdin], [], [], STEP_S)[0]:
            mstxkit.step(step)
            with mstxkit.stage(STAGE):
                pass
            step += 1


if __name__ == "__main__":
    _rank(sys.argv[1], sys.argv[2], int(sys.argv[3]))
