"""A run as its processes leave it that take requests: what they say of themselves, and the profiles they recorded."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from builders.run_files import RUN_ID, WALL_OFFSET_NS

from mstxkit.escalation.duty.mailbox import Mailbox
from mstxkit.host import folders, identity
from mstxkit.store import documents
from mstxkit.store.control_folder import ControlFolder
from mstxkit.store.messages import of_request
from mstxkit.store.report import Report, Standing
from mstxkit.store.request import WHOLE_STEPS, Known, Request, check_request

STAGES = ("actor_generate", "actor_update")
GONE = {"pid_start": 1}  # of another process than the one that has the pid now
NS = 10**9


def empty_run(path: Path) -> Path:
    folders.make_folder(path)
    documents.write_file(path / "run.json", json.dumps({"format": 1, "run": RUN_ID, "created_ns": 0}).encode())
    return path


def run_of(path: Path, ranks: int = 4) -> Path:
    """A run whose ranks are all there and idle."""
    run = empty_run(path)
    for rank in range(ranks):
        say(run, rank, world_size=ranks)
    return run


def control(run: Path) -> ControlFolder:
    return ControlFolder(run, RUN_ID)


def say(
    run: Path, rank: int, *reports: Report, role: str = "", world_size: int = 4, step: int | None = 7,
    stages: tuple[str, ...] = STAGES, phase: str = "idle", backend: str | None = "torch", step_ns: int | None = NS,
    why_not: dict[str, str] | None = None, process: dict[str, Any] | None = None,
    groups: dict[str, tuple[int, int]] | None = None, timeouts: dict[str, str] | None = None, act: str = "observe",
) -> None:  # fmt: skip
    """What a rank says of itself from now on; by default this very process is that rank's."""
    standing = Standing(
        world_size,
        step,
        step_ns,
        stages,
        phase,
        backend,
        why_not or {"torch_npu": "it is not imported"},
        reports,
        groups or {},
        timeouts=timeouts,
        act=act,
    )
    who = identity.of_process(RUN_ID, False, "")
    about = {key: who[key] for key in ("host", "boot", "pidns", "pid", "pid_start")}
    host = run.parent / "host"
    host.mkdir(mode=0o700, exist_ok=True)
    mailbox = Mailbox(control(run), host)
    mailbox.acknowledge(rank, {**standing.as_json(), "memory": {}, "process": {**about, **(process or {})}}, role)
    assert mailbox.flush()


def left(run: Path, *, suspects: tuple[int, ...] = (), **given: Any) -> Request:
    """A request that lies in the control folder already."""
    known = Known((*STAGES, "critic_update", WHOLE_STEPS), range(1 << 31), ("full", "kernels"))
    request = check_request({"stage": "actor_update", "ranks": [1], **given}, known)
    control(run).send(of_request(request, suspects))
    return request


def session(
    run: Path, request: str = "", *, stage: str = "actor_update", step: int | None = 7, rank: int = 1,
    start_ns: int = WALL_OFFSET_NS, **fields: Any,
) -> Path:  # fmt: skip
    """A profile as a session leaves it; its folder."""
    place = "step-unknown" if step is None else f"step{step}"
    folder = run / "profiles" / stage / place / f"rank{rank}" / f"{start_ns}-{os.getpid()}"
    os.makedirs(folder, 0o700)
    about = {
        "format": 1, "run": RUN_ID, "host": identity.name_host(), "pid": os.getpid(), "rank": rank, "world_size": 4,
        "role": "actor", "stage": stage, "step": step, "steps": [] if step is None else [step], "request": request,
        "preset": "full", "options": {}, "reason": "", "state": "recorded", "start_ns": start_ns,
        "end_ns": start_ns + 2 * NS, "start_cost_ns": NS // 10, "stop_cost_ns": NS // 2, "bytes": 5 << 20,
        "output": "raw", "problems": [], "notes": [], "limits": {}, "overshoot": {}, "backend": "torch",
        "backend_version": "2.13.0", "mstxkit": "0.1.0", "ended_because": "", "distributed_args": {}, **fields,
    }  # fmt: skip
    documents.write_file(folder / "session.json", json.dumps(about).encode())
    return folder
