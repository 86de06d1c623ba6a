"""Real DDP trainings on gloo: is a rank that is 20 ms slower named, and where, by what its rings and stages tell?

Each training goes through all kinds of faults; each kind is judged alone, after thirty healthy steps, by a judge that
knows nothing else. Healthy steps are judged too. Stages wait 15 ms besides computing, as a device would let them: four
ranks share two cores here. `BENCH_DDP_ROUNDS` (10) trainings of each shape. traceml-ai 0.5.0 sees the same loop with a
real DataLoader, once for each kind, in an environment that is made for it and thrown away; nothing where it cannot be
installed. A link is slow by LD_PRELOAD (tests/builders/slow_link.c).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Iterator, NamedTuple

from .harness import HERE, Row, compile_shared

ROOT = HERE.parent
VARIANTS: dict[str, dict[str, str]] = {"two": {}, "four": {}, "one_stage": {}, "traceml": {}}
# Ranks, one stage for the whole update, microseconds that a KiB takes more on the slow link: 20 ms a step.
SHAPES = {"two": (2, False, 75), "four": (4, False, 28), "one_stage": (2, True, 75)}
KINDS = ("none", "input", "forward", "backward", "optimizer", "link")
STAGES = {"input": "load_batch", "forward": "forward", "backward": "backward", "optimizer": "optimizer"}
HEALTHY, FAULTY, LATE_MS, BASE_MS, ASK_EVERY = 30, 50, 20, 15, 60
SLOW_RANK = 1
TRACEML = "traceml-ai==0.5.0"


class Judgement(NamedTuple):
    """What was said of one fault: is it right, and was anybody else blamed?"""

    is_right: bool
    blames_others: bool
    said: str


def measure(variant: str) -> list[Row]:
    """Shares of all trainings: of 1 all are right."""
    if variant == "traceml":
        return list(_beside())
    sys.path.insert(0, str(ROOT / "tests"))
    rounds = int(os.environ.get("BENCH_DDP_ROUNDS", "10"))
    with tempfile.TemporaryDirectory() as folder:
        shared = Path(folder) / "slow_link.so"
        compile_shared(ROOT / "tests" / "builders" / "slow_link.c", shared, "-ldl")
        trainings = [_judged(Path(folder) / str(number), shared, variant) for number in range(rounds)]
    return list(_rows(variant, trainings))


def _judged(folder: Path, shared: Path, variant: str) -> dict[str, Judgement]:
    """One training, and what was said of each of its kinds."""
    from builders import ddp_runs

    ranks, is_coarse, us = SHAPES[variant]
    slow = {"LD_PRELOAD": str(shared), "SLOW_LINK_FLAG": str(folder / "slow"), "SLOW_LINK_RANK": str(SLOW_RANK)}
    length = HEALTHY + FAULTY
    phases = [[place * length + at, k] for place, kind in enumerate(KINDS) for at, k in ((0, "none"), (HEALTHY, kind))]
    run = ddp_runs.trained(
        folder, ranks, {**slow, "SLOW_LINK_US": str(us)}, steps=length * len(KINDS), kinds=phases, late_ms=LATE_MS,
        coarse=is_coarse, base_ms=BASE_MS, ask_every=ASK_EVERY, rank=SLOW_RANK,
    )  # fmt: skip
    return {
        kind: _judge(kind, is_coarse, ranks, [run.steps[place * length + at] for at in range(length)])
        for place, kind in enumerate(KINDS)
    }


def _judge(kind: str, is_coarse: bool, ranks: int, steps: list[Any]) -> Judgement:
    from mstxkit.judging.judge import JobJudge

    judge = JobJudge()
    for step in steps:
        judge.close(step)
    blamed = [verdict for verdict in judge.standing() if verdict.is_blaming]
    right = [verdict for verdict in blamed if _is_right(verdict, kind, is_coarse, ranks)]
    others = [verdict for verdict in blamed if verdict not in right and (verdict.rank is not None or kind == "none")]
    first = min((verdict.since_step or 0 for verdict in right), default=0) - steps[0].step - HEALTHY
    said = ", ".join(f"{verdict.kind} {verdict.stage} {verdict.rank}" for verdict in blamed) or "nothing"
    return Judgement(bool(right) or (kind == "none" and not others), bool(others), f"{said} ({first:+d})")


def _is_right(verdict: Any, kind: str, is_coarse: bool, ranks: int) -> bool:
    stage = "load_batch" if kind == "input" else "actor_update" if is_coarse else STAGES.get(kind, "backward")
    if kind == "link":
        return verdict.kind in ("link", "communication") and verdict.group == tuple(range(ranks))
    is_kind = verdict.kind == ("input" if kind == "input" else "compute")
    return kind != "none" and is_kind and (verdict.stage, verdict.rank) == (stage, SLOW_RANK)


def _rows(variant: str, trainings: list[dict[str, Judgement]]) -> Iterator[Row]:
    for kind in KINDS:
        judged = [training[kind] for training in trainings]
        wrong = [judgement.said for judgement in judged if not judgement.is_right or judgement.blames_others]
        note = f"of {len(judged)}; {judged[0].said}" + (f"; not: {'; '.join(wrong)}" if wrong else "")
        yield Row(
            f"ddp.{variant}_{kind}_right", sum(each.is_right for each in judged) / len(judged), "share", note=note
        )
    blamed = [judgement.blames_others for training in trainings for judgement in training.values()]
    yield Row(f"ddp.{variant}_others_blamed", sum(blamed) / len(blamed), "share", note=f"of {len(blamed)} judged")


def _beside() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        command = _installed(Path(folder))
        for kind in KINDS if command is not None else ():
            said = _traceml(command or Path(), kind, Path(folder))
            yield Row(f"ddp.traceml_{kind}_right", float(_is_right_of(said, kind)), "share", note=_in_words(said))


def _installed(folder: Path) -> Path | None:
    """Its command, in an environment with our torch; None where it cannot be had."""
    environment = folder / "environment"
    made = subprocess.run([sys.executable, "-m", "venv", str(environment)], check=False).returncode == 0
    packages = next(environment.glob("lib/python*/site-packages"), None)
    if not made or packages is None:
        return None
    (packages / "ours.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    install = [str(environment / "bin" / "pip"), "install", "--quiet", TRACEML]
    done = subprocess.run(install, check=False, capture_output=True)
    return environment / "bin" / "traceml" if done.returncode == 0 else None


def _traceml(command: Path, kind: str, folder: Path) -> dict[str, Any]:
    """What its summary says of the steps' times; {} where there is none."""
    shared = folder / "slow_link.so"
    if not shared.exists():
        compile_shared(ROOT / "tests" / "builders" / "slow_link.c", shared, "-ldl")
    slow = {"LD_PRELOAD": str(shared), "SLOW_LINK_FLAG": str(shared), "SLOW_LINK_RANK": "1", "SLOW_LINK_US": "75"}
    environment = {
        **os.environ, **(slow if kind == "link" else {}), "KIND": kind, "STEPS": "120", "BASE_MS": str(BASE_MS),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    options = ["run", "--nproc-per-node", "2", "--run-name", kind, "--logs-dir", str(folder / "logs")]
    ran = [str(command), *options, str(HERE / "ddp_under_traceml.py")]
    subprocess.run(ran, env=environment, cwd=folder, capture_output=True, timeout=300, check=False)
    summary = folder / "logs" / kind / "final_summary.json"
    content: dict[str, Any] = json.loads(summary.read_text()) if summary.exists() else {}
    diagnosis = content.get("step_time", {}).get("diagnosis")
    return diagnosis if isinstance(diagnosis, dict) else {}


def _is_right_of(said: dict[str, Any], kind: str) -> bool:
    """Does it name the rank and where? Of a healthy loop: does it name nobody?"""
    if kind == "none":
        return not said.get("ranks") or said.get("severity") == "info"
    where = f"{said.get('metric')} {said.get('phase')} {said.get('kind')}".lower()
    return said.get("ranks") == [SLOW_RANK] and kind in where


def _in_words(said: dict[str, Any]) -> str:
    return f"{said.get('status')}, {said.get('phase')}, ranks {said.get('ranks')}" if said else "no summary"
