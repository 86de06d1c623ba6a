"""What the hosts of a job have handed over while it ran, as steps with the collectives that rings tell of."""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import Iterator

import numpy as np

from ...judging.controller import Controller
from ...judging.evidence import RoleStep
from ...store import batches
from ...store.batches import Batch


def with_rings(run: str, run_id: str) -> list[RoleStep]:
    """The steps of a run of which a ring tells, by step; nothing is judged. *Cost*: reads all that was handed over."""
    every = (part for of_host in _handed_over(run, run_id) for batch in of_host for part in batch.parts)
    if not any(kind == batches.COLLECTIVES for kind, _, _ in every):
        return []
    steps: list[RoleStep] = []
    controller = Controller(run, on_step=lambda step: steps.extend([step] if step.collectives else []), judges=False)
    now_s = 0.0
    for batch in heapq.merge(*_handed_over(run, run_id), key=lambda batch: batch.time_s):
        now_s = max(now_s, batch.time_s)
        controller.take(batch, now_s)
        if controller.is_due(now_s):
            controller.work(now_s)
    controller.work(now_s, at_once=True)
    return sorted(steps, key=lambda step: step.step)


def pick_waits(steps: list[RoleStep], are_taking: bool) -> list[RoleStep]:
    """Those in which members waited for what they took, or entered anything else, with that alone."""
    kept = [step.collectives and step.collectives.only(step.collectives.is_taking == are_taking) for step in steps]
    return [step._replace(collectives=of) for step, of in zip(steps, kept) if of is not None and len(of.member)]


def _handed_over(run: str, run_id: str) -> list[Iterator[Batch]]:
    """The batches of each host."""
    return [batches.BatchFile(file, run_id).read() for file in batches.files_in(Path(run))]


def join_rings(steps: list[RoleStep], ringed: list[RoleStep]) -> list[RoleStep]:
    """A run's own steps, with the collectives that rings tell of for the same role, step and ranks, on its times."""
    by_step = {(step.role, step.step): step for step in ringed}
    whole = []
    for step in steps:
        ring = by_step.get((step.role, step.step))
        places: dict[int | None, int] = {p.rank: at for at, p in enumerate(step.members) if p.rank is not None}
        if ring is None or ring.collectives is None or len(places) != len(step.members):
            whole.append(step)
            continue
        member = np.array([places.get(peer.rank, -1) for peer in ring.members], np.int64)[ring.collectives.member]
        its_stages = {name: number for number, name in enumerate(step.stages)}
        stage = np.array([*(its_stages.get(name, -1) for name in ring.stages), -1], np.int64)[ring.collectives.stage]
        moved = ring.collectives._replace(member=member, stage=stage).only((member >= 0) & (stage >= 0))
        # By how many seconds the run's tables count otherwise than what was handed over, as far as that is known.
        apart = [
            step.entered_s[places[peer.rank], step.stages.index(name)] - ring.entered_s[place, number]
            for place, peer in enumerate(ring.members)
            for number, name in enumerate(ring.stages)
            if peer.rank in places and name in step.stages
        ]
        if np.isfinite(apart).any():
            before_s = float(np.nanmedian(apart))
            moved = moved._replace(entered_s=moved.entered_s + before_s, left_s=moved.left_s + before_s)
            step = step._replace(collectives=moved)
        whole.append(step)
    return whole
