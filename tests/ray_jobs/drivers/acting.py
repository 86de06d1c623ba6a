"""Workers that enter real stages, one of them slowly, in a job whose verdicts may act. Says what came of it.

    acting.py RUN

Only the driver says so: `capture(act="escalate")`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import ray

import mstxkit
from mstxkit.escalation import asking
from mstxkit.store import verdicts

TESTS = str(Path(__file__).resolve().parents[2])
RANKS, STEP_MS, WITHIN_S = 2, 300, 90.0


@ray.remote(num_cpus=0.5)
class Worker:
    """One rank."""

    def __init__(self, rank: int) -> None:
        mstxkit.identify(rank=rank, world_size=RANKS, role="actor")
        sys.path.insert(0, TESTS)
        self._rank = rank

    def can(self) -> bool:
        """Is there a profiler that could record?"""
        from builders import acting_rank

        return acting_rank.torch is not None

    def work(self, start_ns: int, folder: str) -> None:
        """Step after step, until it is told to end."""
        from builders import acting_rank

        acting_rank.main(start_ns, STEP_MS * 1_000_000, self._rank == 1, Path(folder))


def acted(run: Path, can: bool) -> list[verdicts.Verdict]:
    """Verdicts that have asked for a profile; where nobody can record, those that say why they have not.

    Why they have not yet, as long as a peer has said nothing of itself, is no end.
    """
    return [verdict for verdict in verdicts.read_verdicts(run) if verdict.request or (verdict.no_request and not can)]


def came_of(run: Path, can: bool, before: tuple[str, ...]) -> tuple[verdicts.Verdict, dict[int, str]]:
    """The first verdict that has acted but by these requests, and in which state its own ended on each rank."""

    def new() -> list[verdicts.Verdict]:
        return [verdict for verdict in acted(run, can) if verdict.request not in before]

    until(new)
    verdict = new()[0]
    if not verdict.request:
        return verdict, {}
    control = asking.control_of(run)
    asked = asking.find_request(control, verdict.request)
    until(lambda: asking.fates_of(control).progress(asked).has_ended)
    return verdict, {one.rank: one.state for one in asking.fates_of(control).progress(asked).reports}


def until(is_so: object) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not is_so() and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.1)


def main(run: Path) -> None:
    """The job."""
    with mstxkit.capture(run, act="escalate", transport_s=0.5):
        ray.init(num_cpus=2)
        workers = [Worker.remote(rank) for rank in range(RANKS)]
        can = all(ray.get([worker.can.remote() for worker in workers]))
        with tempfile.TemporaryDirectory() as folder:
            calls = [worker.work.remote(time.monotonic_ns() + 10**9, folder) for worker in workers]
            verdict, states = came_of(run, can, ())
            if set(states.values()) == {"cancelled"}:  # a busy machine made all slow, and the verdict was withdrawn
                verdict, states = came_of(run, can, (verdict.request,))
            (Path(folder) / "end").touch()
            ray.get(calls)
        ray.shutdown()
    said = {"can": can, "verdict": json.loads(verdict.line()), "states": states}
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
