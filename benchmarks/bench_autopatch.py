"""What `autopatch("verl")` costs a process, and what a method call that it patched costs, off and while recording.

The first in CPU time beyond verl's own import, in fresh processes, in turns, of the environment that has verl
(`make setup-frameworks`); left out where there is none. As verl's import takes seconds, which differ by more than what
is looked for, the budget is on our own part of it, the call and the hooks, as a share of that import. The second over
the bare call, in units of `with` over a C object that does nothing, through the engine that patches, on a class of a
stand-in module.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
from types import ModuleType
from typing import Any, Mapping

from .harness import HERE, NATIVE, TSC, TWIN, Rounds, Row, spread
from .recording import STEP, recording

VARIANTS: dict[str, dict[str, str]] = {
    "verl": {},
    "off_native": NATIVE,
    "off_twin": TWIN,
    "recording_native_tsc": {**NATIVE, **TSC},
    "recording_twin": TWIN,
}
PYTHON = HERE.parent / ".venvs/frameworks/bin/python"
PROCESSES = {"verl": 1}  # it makes processes of its own
ROUNDS = 5
# What a trainer and a worker process import.
TRAINER_AND_WORKERS = "import verl.trainer.ppo.ray_trainer, verl.workers.engine_workers"
PATCH = "import mstxkit; mstxkit.autopatch('verl')"
# CPU time of the hooks that run at the end of each patched module's import, added up in `spent`. What verl imports in
# any case, and we too, counts as verl's.
WATCH = """
import mstxkit, ray, time, torch
from mstxkit.host import imports
spent, run = [], imports._run_hook
def timed(*of_a_hook):
    began = time.process_time_ns()
    run(*of_a_hook)
    spent.append(time.process_time_ns() - began)
imports._run_hook = timed
"""
# Statements before the clock starts, those that are timed, and what is printed besides.
IN_PROCESSES = {
    "bare": ("", TRAINER_AND_WORKERS, "0"),
    "patched": ("", f"{PATCH}; {TRAINER_AND_WORKERS}", "0"),
    "call": (WATCH, PATCH, "0"),
    "hooks": (f"{WATCH}\n{PATCH}; spent.clear()", TRAINER_AND_WORKERS, "sum(spent)"),
    "afterwards": (TRAINER_AND_WORKERS, PATCH, "0"),
}
# Without Python's garbage collector: one look at all that torch and Ray hold takes 10 to 20 ms, and which of thousands
# of allocations sets it off is chance.
CODE = """
import gc, time
gc.disable()
{before}
began = time.process_time_ns()
{timed}
took_ns = time.process_time_ns() - began
print("took", {instead} or took_ns)
"""
AT_MOST = 8_000
STAND_IN = "mstxkit_benchmark_stand_in"
CALL = "o.update(1, k=2)"
# By name of a target: what is declared for it, and how it is called.
READING: dict[str, tuple[dict[str, Any], str]] = {
    "plain": ({}, CALL),
    "role": ({"role": "actor"}, CALL),
    "role_of_stage": ({"role": "stage"}, CALL),
    "three_attributes": ({"role": "actor", "attributes": {"a": "a", "k": "k", "n": "self.n"}}, CALL),
    "step_and_role": ({"step": "k", "attributes": {"role": "a"}}, f"o.update('actor', k={STEP})"),
}


class Bare:
    """What is patched, as a framework would have it."""

    def __init__(self) -> None:
        self.n = 5

    def update(self, a: Any, k: int = 0) -> None:
        """Nothing."""


def measure(variant: str) -> list[Row]:
    """Processes with verl, or calls in this one."""
    return _with_verl() if variant == "verl" else _calls(variant)


def _with_verl() -> list[Row]:
    if not PYTHON.exists():
        return [Row("autopatch.left_out", 0, "", note="verl is not installed here: make setup-frameworks")]
    took: dict[str, list[float]] = {name: [] for name in IN_PROCESSES}
    order = random.Random(1)  # of neighbours, the later one finds files and caches warm
    for _ in range(ROUNDS):
        for name in order.sample(list(IN_PROCESSES), len(IN_PROCESSES)):
            took[name].append(_cpu_ms(*IN_PROCESSES[name]))
    ours = [call + hooks for call, hooks in zip(took["call"], took["hooks"])]
    more = [patched - bare for patched, bare in zip(took["patched"], took["bare"])]
    own_s = statistics.median(took["bare"]) / 1e3
    return [
        _share("autopatch.verl_share", ours, own_s, "the call, and the hooks at the end of each import"),
        _row("autopatch.verl_difference_ms", more, f"of whole processes; verl's own import takes {own_s:.1f} s"),
        _share("autopatch.verl_afterwards_share", took["afterwards"], own_s, "the call, once verl is imported"),
    ]


def _share(key: str, values_ms: list[float], own_s: float, what: str) -> Row:
    """Of the CPU time that verl's own import takes in the same run: machines differ, and the share hardly does."""
    shares = [ms / own_s / 1e3 for ms in values_ms]
    note = f"{what}: {statistics.median(values_ms):.0f} ms"
    return Row(key, statistics.median(shares), "of import", spread(shares), note)


def _row(key: str, values_ms: list[float], note: str) -> Row:
    return Row(key, statistics.median(values_ms), "ms", spread(values_ms), note)


def _cpu_ms(before: str, timed: str, instead: str) -> float:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MSTXKIT_", "PYTHON"))}
    environment["PYTHONPATH"] = str(HERE.parent)
    code = CODE.format(before=before, timed=timed, instead=instead)
    done = subprocess.run([str(PYTHON), "-W", "ignore", "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout.rpartition("took ")[2]) / 1e6


def _calls(variant: str) -> list[Row]:
    from mstxkit.engine.choose import engine

    native = "native" in variant
    objects = {"bare": Bare(), **patched({name: fields for name, (fields, _) in READING.items()})}
    if variant.startswith("off"):
        assert bool(engine.NATIVE) is native and not engine.recording()
        rounds = _cases(objects).run()
    else:
        with recording(native, clock="tsc" if variant.endswith("tsc") else "") as session:
            rounds = _cases(objects, after=session.drain, at_most=AT_MOST).run()
            session.expect({name: rounds.cases[name].done for name in objects if name != "bare"})
    rows = [rounds.row(_key(name, variant), name, over="bare") for name in READING]
    return [*rows, *_over_plain(rounds, variant)] if variant == "recording_twin" else rows


def _key(name: str, variant: str) -> str:
    return f"autopatch.call_{variant}" if name == "plain" else f"autopatch.call_{name}_{variant}"


def _over_plain(rounds: Rounds, variant: str) -> list[Row]:
    """What the twin takes to read something, and to record it, in units of its own plain patched call."""
    plain = rounds.net("plain", over="bare")
    rows = []
    for name in READING:
        ratios = [own / whole for own, whole in zip(rounds.net(name, over="bare"), plain)]
        rows.append(Row(f"{_key(name, variant)}_over_plain", statistics.median(ratios), "x plain", spread(ratios)))
    return rows[1:]


def patched(fields_of: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Objects of classes of a stand-in framework, by name of the target, as it is declared."""
    from mstxkit.patching import registry
    from mstxkit.patching.declare import Patch, Target

    module = ModuleType(STAND_IN)
    classes = {name: type(name, (Bare,), {"update": _copy(Bare.update)}) for name in fields_of}
    vars(module).update(classes)
    sys.modules[STAND_IN] = module
    targets = tuple(Target(f"{STAND_IN}:{name}.update", name=name, **fields) for name, fields in fields_of.items())
    registry.install_patches([(Patch(STAND_IN, "any", targets), False)])
    states = [state.state for state in registry.report_targets().targets]
    assert states == ["applied"] * len(targets), states
    return {name: cls() for name, cls in classes.items()}


def _copy(function: Any) -> Any:
    """The same function as an object of its own."""
    return type(function)(function.__code__, globals(), function.__name__, function.__defaults__)


def _cases(objects: Mapping[str, Any], **options: Any) -> Rounds:
    rounds = Rounds()
    for name, one in objects.items():
        rounds.add(name, READING[name][1] if name in READING else CALL, {"o": one}, **options)
    return rounds
