"""A job as its judge and its hosts have said it, in files of a run: for what shows and exports it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from mstxkit.host import identity
from mstxkit.store import job_file, layout, run_file
from mstxkit.store.job_file import JobState, Latecomer, RoleFigures, StageFigures
from mstxkit.store.verdicts import COMPUTE, Verdict

S = 10**9
HOSTILE = '\x1b[2Jx\u202e<b>"\\\n{}\ud800'
STAGES = ("load_batch", "actor_generate", "reward", "actor_update")


def role(name: str = "actor", step: int = 41, members: int = 16, stages: Any = STAGES, **more: Any) -> RoleFigures:
    """A role whose stages follow each other; each is half a second longer than the one before."""
    begin_ns, listed = 1_700_000_000 * S, []
    for number, stage in enumerate(stages):
        took_s = 0.5 * (number + 1)
        end_ns = begin_ns + int(took_s * S)
        work = {"tokens_per_s": 12_000.0, "mfu_ratio": 0.41} if number == 1 else {}
        listed.append(StageFigures(stage, took_s, 0.8 * took_s, 3, begin_ns, end_ns, members, **work))
        begin_ns = end_ns
    late = (Latecomer(3, "node-0", "actor_update", 0.32),)
    fields = {"wait_ratio": 0.12, "late": late, **more}
    return RoleFigures(
        name, step, members, begin_ns=listed[0].begin_ns, end_ns=begin_ns, stages=tuple(listed), **fields
    )


def verdict(**fields: Any) -> Verdict:
    """That rank 3 is slow."""
    about: dict[str, Any] = {
        "id": "v1", "time_ns": 1_700_000_005 * S, "step": 40, "kind": COMPUTE, "stage": "actor_generate", "rank": 3,
        "role": "actor", "since_step": 10, "impact_ratio": 0.24, "confidence": 0.9,
        "waits_for": "ranks 0-2,4-15 wait for rank 3 in actor_update",
        "next": "mstxkit escalate runs/exp7 --stage actor_generate --ranks 3,0",
    }  # fmt: skip
    return Verdict(**{**about, **fields})


class ShownJob:
    """A run folder with what was said of a job.

    Args:
        folder: In which the run is made.
    """

    def __init__(self, folder: Path, name: str = "exp7") -> None:
        self.run, self.run_id = run_file.open_run_folder(folder / name)

    def say(self, *roles: RoleFigures, **more: Any) -> JobState:
        """What its judge says of it, now."""
        fields = {"hosts": 2, "written_ns": time.time_ns(), **more}
        (self.run / layout.VERDICTS).mkdir(exist_ok=True, mode=0o700)
        state = JobState(tuple(roles), **fields)
        job_file.write_state(self.run, self.run_id, state)
        return state

    def blame(self, *of: Verdict, who: str = "controller") -> None:
        """Its verdicts."""
        (self.run / layout.VERDICTS).mkdir(exist_ok=True, mode=0o700)
        content = b"".join(one.line() for one in of)
        (self.run / layout.VERDICTS / f"{who}{layout.VERDICTS_SUFFIX}").write_bytes(content)

    def stand(self, host: int, ranks: range, stage: str = "actor_update", ago_s: float = 1.0, **more: Any) -> None:
        """Where the ranks of a host are, as its keeper says."""
        (self.run / layout.NOW).mkdir(exist_ok=True, mode=0o700)
        processes = [
            {"pid": 1000 + rank, "rank": rank, "role": "actor", "part": "trainer", "step": 41, "stage": stage,
             "in_stage_ns": 3 * S, **more}
            for rank in ranks
        ]  # fmt: skip
        about = {
            "format": 1, "run": self.run_id, "host": f"node-{host}", "boot": identity.boot_id(),
            "timens": identity.read_namespace("time"), "written_ns": time.time_ns() - int(ago_s * S),
            "mono_ns": time.monotonic_ns() - int(ago_s * S), "processes": processes,
        }  # fmt: skip
        (self.run / layout.NOW / f"node-{host}-0{layout.NOW_SUFFIX}").write_text(json.dumps(about))
