"""Steps of a role by hand, and a judge that goes through them."""

from __future__ import annotations

from typing import Any, Iterable

import numpy as np
from builders.simulated_job import SimulatedJob

from mstxkit.judging.evidence import Collectives, Peer, RoleStep, Work
from mstxkit.judging.judge import JobJudge
from mstxkit.store.verdicts import Verdict


def peers(count: int, a_host: int = 4) -> tuple[Peer, ...]:
    return tuple(Peer(rank, f"host{rank // a_host}", f"p{rank}") for rank in range(count))


def role_step(
    step: int, stages: Iterable[str], entered: Any, left: Any, tokens: Any = None, error_s: float = 0.0, **more: Any
) -> RoleStep:
    """(M, S) seconds; tokens as many, or None."""
    entered, left = np.asarray(entered, float), np.asarray(left, float)
    nothing = np.full(entered.shape, np.nan)
    work = Work(nothing if tokens is None else np.asarray(tokens, float), nothing, nothing)
    more.setdefault("members", peers(len(entered)))
    return RoleStep(
        more.pop("role", "actor"), step, more.pop("members"), tuple(stages), entered, left, left - entered,
        np.isfinite(entered).astype(float), work, np.full(len(entered), error_s),
        **more,
    )  # fmt: skip


def collectives(entries: Iterable[tuple[int, int, int, float, float, int]], **more: Any) -> Collectives:
    """Of (member, group, sequence, entered, left, stage)."""
    columns = list(zip(*entries))
    whole = [np.array(columns[at], np.int64) for at in (0, 1, 2, 5)]
    entered, left = (np.array(columns[at], float) for at in (3, 4))
    return Collectives(whole[0], whole[1], whole[2], entered, left, whole[3], more.pop("groups", {}), **more)


def judged(job: SimulatedJob, steps: int, judge: JobJudge | None = None) -> list[Verdict]:
    """All lines that are written of a simulated job."""
    judge, lines = judge or JobJudge(), []
    for step in job.steps(steps):
        done = judge.close(step)
        job.grant(done.wants)
        lines += done.verdicts
    return lines


def acting_in_every(every: int, rank: int, steps: Iterable[RoleStep]) -> Iterable[RoleStep]:
    """The same steps, but that rank does something in every so manieth of them only."""
    for step in steps:
        if step.step % every:
            for values in (step.entered_s, step.left_s, step.total_s, *step.work):
                values[rank] = np.nan
            step.occurrences[rank] = 0
        yield step


def alone(steps: int, ranks: int = 6, seed: int = 1, **more: Any) -> list[RoleStep]:
    """A role whose ranks compute one stage each for itself, then meet in another.

    Args:
        steps: How many.
        ranks: How many.
        seed: Of the noise.
        more: `slow`, `also_slow`: (rank, factor, since); `work`: the same of tokens, and of the time that they take.
    """
    random, now, result = np.random.default_rng(seed), np.full(ranks, 100.0), []
    for step in range(steps):
        slow, work = np.ones(ranks), random.lognormal(0, 0.2, ranks)
        for name, factors in (("slow", slow), ("also_slow", slow), ("work", work)):
            rank, factor, since = more.get(name, (0, 1.0, 0))
            factors[rank] *= factor if step >= since else 1.0
        entered = now + 0.001
        done = entered + work * slow * np.exp(random.normal(0, 0.03, ranks))
        left = np.full(ranks, done.max() + 0.5) + random.exponential(1e-4, ranks)
        tokens = np.stack([work * 1000, np.full(ranks, np.nan)], axis=1)
        stages = ("actor_generate", "actor_update")
        result.append(role_step(step, stages, np.stack([entered, done], 1), np.stack([done, left], 1), tokens))
        now = left
    return result
