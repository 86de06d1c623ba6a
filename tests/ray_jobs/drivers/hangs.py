"""A driver that waits in `ray.get` for an actor that never answers: inside of a range of its own, or in none."""

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

WITHIN_S, LONGER_S = 60.0, 3.0


@ray.remote
class Scorer:
    """Never answers."""

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


def end_it(run: Path, scorer: ray.actor.ActorHandle, found: list[incidents.Incident]) -> None:
    """Kill the actor a while after somebody was named: nobody else is."""
    deadline = time.monotonic() + WITHIN_S
    while not incidents.read(run, run_file.id_of(run) or "") and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(LONGER_S)
    found += incidents.read(run, run_file.id_of(run) or "")
    ray.kill(scorer)


def main() -> None:
    is_marked, run = sys.argv[1] == "marked", Path(sys.argv[2])
    with mstxkit.capture(run, hang_s=3):
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
        scorer = Scorer.remote()
        pid = ray.get(scorer.begin.remote())
        for _ in range(3):  # how long that takes is known by now
            with mstxkit.stage("collect_scores"):
                ray.get(scorer.begin.remote())
        time.sleep(4)
        with mstxkit.stage("collect_scores"):
            answer, found = scorer.score.remote(is_marked), list[incidents.Incident]()
            threading.Thread(target=end_it, args=(run, scorer, found)).start()
            try:
                ray.get(answer)
            except ray.exceptions.RayActorError:
                pass
    rows = [[i.kind, i.stage, i.range, i.details["pid"], i.reason] for i in found]
    sys.stdout.write(json.dumps({"pid": pid, "driver": os.getpid(), "incidents": rows}))


if __name__ == "__main__":
    main()
