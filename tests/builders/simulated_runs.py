"""A simulated job as the files of a run: what its ranks would have recorded, ranges inside of stages too."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Sequence

import numpy as np
from builders.run_files import BankFiles, ProcessFiles, new_run
from builders.simulated_job import SimulatedJob

from mstxkit.testing.simulator import InjectedFault, JobShape

_NS = 1e9


def recorded_job(
    path: Path, shape: JobShape, seed: int = 7, faults: Sequence[InjectedFault] = (), steps: int = 60,
    around_collectives: bool = True, names: dict[str, str] | None = None,
) -> Path:  # fmt: skip
    """A sealed run of so many steps of it.

    Args:
        path: Its folder.
        shape, seed, faults: Of the job.
        steps: How many.
        around_collectives: With ranges around the collectives of a stage, in the steps that have rings.
        names: Other names of stages than their keys.
    """
    run, banks, roles = new_run(path), {}, {}
    by_step = {(step.role, step.step): step for step in SimulatedJob(shape, seed, faults).steps(steps)}
    for step in by_step.values():
        for at, peer in enumerate(step.members):
            bank = banks.setdefault(peer.rank, BankFiles())
            roles[peer.rank] = step.role
            _ranges(bank, step, at, names or {}, around_collectives)
    for rank, bank in banks.items():
        host = f"host{rank // shape.ranks_per_host}"
        ProcessFiles(run, 100 + rank, rank=rank, host=host, world_size=len(banks), role=roles[rank]).seal(bank)
    return run


def _ranges(bank: BankFiles, step: Any, at: int, names: dict[str, str], around_collectives: bool) -> None:
    for number, stage in enumerate(step.stages):
        begin, end = step.entered_s[at, number], step.left_s[at, number]
        if np.isnan(begin):
            continue
        name = names.get(stage, stage)
        if around_collectives and step.collectives is not None:
            _inside(bank, step, at, number, name)
        work = zip(("tokens", "responses", "longest_response"), step.work)
        known = {key: round(float(values[at, number])) for key, values in work if np.isfinite(values[at, number])}
        bank.range(name, round(begin * _NS), round(end * _NS), stage=name, own=True, step=step.step, **known)


def _inside(bank: BankFiles, step: Any, at: int, number: int, name: str) -> None:
    rings = step.collectives
    mine = np.flatnonzero((rings.member == at) & (rings.stage == number))
    before = step.entered_s[at, number]
    for call in mine[np.argsort(rings.entered_s[mine])]:
        entered, left = rings.entered_s[call], rings.left_s[call]
        bank.range("forward_backward", round(before * _NS), round(entered * _NS), stage=name, step=step.step, depth=1)
        bank.range("all_reduce", round(entered * _NS), round(left * _NS), stage=name, step=step.step, depth=1)
        before = left
