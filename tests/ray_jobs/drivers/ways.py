"""One job whose worker says what it found: how `ray.init` may be called, and what must then hold in a worker.

Arguments: the way, the run folder.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

import ray

import mstxkit

TARGETS = Path(__file__).resolve().parents[1] / "packages" / "acme_rl" / "targets.yaml"
way, run = sys.argv[1:]


def mark_by_hand() -> None:
    os.environ["THEIR_HOOK"] = f"ran, connected: {ray.is_initialized()}"


def fail_by_hand() -> None:
    raise RuntimeError("their hook fails")


@ray.remote(max_retries=0)
def look() -> dict[str, Any]:
    from acme_rl import workers

    workers.normalise(1)
    status = mstxkit.status()
    return {
        "their hook": os.environ.get("THEIR_HOOK"),
        "their variable": os.environ.get("THEIRS"),
        "left for the next hook": os.environ.get("MSTXKIT_RAY_NEXT_HOOK"),
        "records into": status.run,
        "faults": list(status.faults),
        "applied": sum(one.state == "applied" for one in mstxkit.patch_report().targets),
    }


def initialise(**given: Any) -> dict[str, Any]:
    """`ray.init` with these arguments, which must be as before afterwards; what a worker then found."""
    environment = given.get("runtime_env")
    before = None if environment is None else copy.copy(environment)
    variables = None if environment is None else copy.copy(environment.get("env_vars"))
    ray.init(**given)
    is_changed = environment is not None and (environment != before or environment.get("env_vars") != variables)
    return {**ray.get(look.remote()), "the caller's own is changed": is_changed}


def crash(**given: Any) -> dict[str, Any]:
    """How Ray ends a job whose hook fails."""
    try:
        return initialise(**given)
    except ray.exceptions.WorkerCrashedError as exc:
        return {"ended by": type(exc).__name__}


def go() -> dict[str, Any]:
    theirs = {"THEIRS": "1"}
    if way == "plainly":
        return initialise()
    if way == "by itself":  # Ray's own ray.init, without arguments
        return dict(ray.get(look.remote()))
    if way == "with a hook by path":
        return initialise(runtime_env={"worker_process_setup_hook": "acme_rl.hooks.leave_a_mark", "env_vars": theirs})
    if way == "with a function as hook":
        return initialise(runtime_env={"worker_process_setup_hook": mark_by_hand, "env_vars": theirs})
    if way == "with a RuntimeEnv":
        return initialise(
            runtime_env=ray.runtime_env.RuntimeEnv(
                worker_process_setup_hook="acme_rl.hooks.leave_a_mark", env_vars=theirs
            )
        )
    if way == "with a job_config":
        config = ray.job_config.JobConfig(runtime_env={"env_vars": theirs}, metadata={"their": "job"})
        found = initialise(job_config=config)
        return {**found, "the caller's own is changed": config.runtime_env != {"env_vars": theirs}}
    if way == "with a hook that fails":
        return crash(runtime_env={"worker_process_setup_hook": "acme_rl.hooks.fail"})
    if way == "with a function that fails":
        return crash(runtime_env={"worker_process_setup_hook": fail_by_hand})
    if way == "with a recipe":  # somebody has put our hook in already
        return initialise(runtime_env={"worker_process_setup_hook": "mstxkit.bootstrap.ray.setup", "env_vars": theirs})
    if way == "with settings that cannot be used":
        wrong = {"MSTXKIT_RUN": "/dev/null/run", "MSTXKIT_AUTOPATCH": "no_such_framework,/no/such.yaml"}
        return initialise(runtime_env={"env_vars": {**theirs, **wrong}})
    if way == "switched off in workers":
        return initialise(runtime_env={"env_vars": {**theirs, "MSTXKIT_OFF": "1"}})
    raise SystemExit(f"no such way: {way}")


if way == "too late":
    ray.init()
    with mstxkit.capture(run):
        report = mstxkit.autopatch(targets=TARGETS)
        found = {**ray.get(look.remote()), "notes": list(report.notes)}
        ray.shutdown()
elif way == "capture alone":
    with mstxkit.capture(run):
        found = initialise()
        ray.shutdown()
else:
    with mstxkit.capture(run):
        mstxkit.autopatch(targets=TARGETS)
        found = go()
        found["notes"] = list(mstxkit.patch_report().notes)
        ray.shutdown()
sys.stdout.write(json.dumps(found))
