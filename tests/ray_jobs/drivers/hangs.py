"""A driver that waits in `ray.get` for an actor that never answers: inside of a range of its own (`marked`), in none
(`not`), or itself in `ray.get` for one in none (`between`).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import ray

import mstxkit
from mstxkit.store import incidents, run_file

# A range may take a multiple of what it usually does, and on a busy machine that is long.
WITHIN_S, LONGER_S = 150.0, 3.0


@ray.remote(num_cpus=0)
class Scorer:
    """Never answers. It has its rank as frameworks set it: in its own environment."""

    def __init__(self, rank: int) -> None:
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}

    def begin(self) -> int:
        """It is there, and recorded."""
        with mstxkit.stage("warm_up"):
            return os.getpid()

    def score(self, is_marked: bool) -> None:
        """For ever."""
        if not is_marked:
            time.sleep(1000)
        with mstxkit.stage("reward"), mstxkit.mstx_range("score"):
            time.sleep(1000)

    def pass_on(self, scorer: ray.actor.ActorHandle) -> None:
        """Let another one do it."""
        for _ in range(3):  # how long that takes is known by now
            with mstxkit.stage("reward"), mstxkit.mstx_range("score"):
                ray.get(scorer.begin.remote())
        with mstxkit.stage("reward"), mstxkit.mstx_range("score"):
            ray.get(scorer.score.remote(False))


def end_it(run: Path, scorers: list[ray.actor.ActorHandle], found: list[incidents.Incident]) -> None:
    """Kill the actors a while after somebody was named: nobody else is."""
    deadline = time.monotonic() + WITHIN_S
    while not incidents.read_incidents(run, run_file.id_of(run) or "") and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(LONGER_S)
    found += incidents.read_incidents(run, run_file.id_of(run) or "")
    for scorer in scorers:
        ray.kill(scorer)


def main() -> None:
    deed, run = sys.argv[1], Path(sys.argv[2])
    with mstxkit.capture(run, hang_s=3):
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
        scorers = [Scorer.remote(rank) for rank in range(2)]
        for _ in range(3):
            with mstxkit.stage("collect_scores"):
                ray.get([scorer.begin.remote() for scorer in scorers])
        time.sleep(4)
        with mstxkit.stage("collect_scores"):
            first, second = scorers
            answer = first.pass_on.remote(second) if deed == "between" else second.score.remote(deed == "marked")
            found = list[incidents.Incident]()
            threading.Thread(target=end_it, args=(run, scorers, found)).start()
            try:
                ray.get(answer)
            except ray.exceptions.RayError:
                pass
    rows = [[i.kind, i.stage, i.range, i.rank, i.details["pid"], i.waits_for, i.reason] for i in found]
    sys.stdout.write(json.dumps({"driver": os.getpid(), "incidents": rows}))


if __name__ == "__main__":
    main()
