"""What was judged of a run: as its judge has written it while the job ran; else judged here, from the run's own tables.

Everything that calls somebody slow goes by this: the report, "suspect+peer", the demo.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Iterable, NamedTuple

from ..host.parts import TRAINER
from ..store import job_file, judge_lock
from ..store.job_file import JobState
from ..store.verdicts import HANG
from .tables import findings

if TYPE_CHECKING:
    import polars as pl

    from ..judging.evidence import RoleStep
    from ..judging.judged import Want
    from ..judging.whole_run import JudgedSteps
    from ..store.verdicts import Verdict
    from .roles import Roles

# Who judged: the job's own judge while it ran; this reader, from tables; nobody, as there is nothing to judge by.
JOB, TABLES, NOBODY = "job", "tables", "nobody"
# Where no verdict comes of fewer steps that could lead to one, nothing follows: a rank that is 10 % slower takes 15.
ENOUGH_STEPS = 20
# Of a job that is over its judge is waited for so long.
_LAST_WORD_S, _LOOKS_EVERY_S, _RUNNING = 15.0, 0.1, "running"
NO_STEP, NO_PEER = "no step is over in which a stage has ended", "no two ranks have finished a step together"
TWICE = "the same ranks are there twice at once, so nobody can tell who waits for whom"
ANEW = "steps are counted from the beginning again, so here each is all that have its number together"
# A rank that is started again may begin while the one before it is still said to live.
_TOGETHER_FROM_NS = 5_000_000_000
_PLACE = ("attempt", "role", "rank")
# Clocks that err by more than this share of a step may hide who is slow.
_VAGUE_FROM = 0.05


class JudgedRole(NamedTuple):
    """A role, how many steps its last attempt had, and how many of these could lead to a verdict."""

    role: str
    steps: int
    judged_steps: int


class JobVerdicts(NamedTuple):
    """What holds of a run.

    Args:
        by: JOB, TABLES or NOBODY.
        holding: Verdicts that are not withdrawn, those that blame first, by what they cost.
        steps: So many steps were judged; 0 where the job's judge did.
        why_not: Why nobody judged; "" where somebody did.
        wants: What would tell more, as the judge asks for it.
        roles: Whose ranks were compared here; () where the job's judge did.
        withdrawn: Verdicts that held for a time.
    """

    by: str
    holding: tuple[Verdict, ...] = ()
    steps: int = 0
    why_not: str = ""
    wants: tuple[Want, ...] = ()
    roles: tuple[JudgedRole, ...] = ()
    withdrawn: tuple[Verdict, ...] = ()

    @property
    def every(self) -> tuple[Verdict, ...]:
        """All that was said, of what is withdrawn too."""
        return (*self.holding, *self.withdrawn)

    @property
    def blaming(self) -> tuple[Verdict, ...]:
        """Those that name a cause."""
        return tuple(verdict for verdict in self.holding if verdict.is_blaming)


def of_run(roles: Roles) -> JobVerdicts:
    """What was judged of a run: what lies in it, else what its tables show.

    Where the job's judge lacks evidence, its tables may have it: ranges around collectives.
    """
    await_last_word(roles)
    every = findings.stored_verdicts(roles.files.path, roles.files.damage)
    # Hangs are seen by others than the judge, also where nobody judges.
    hangs = [verdict for verdict in every if verdict.kind == HANG and not verdict.withdrawn]
    if ranks_there_twice(roles.processes):
        judged = JobVerdicts(NOBODY, why_not=TWICE)
    else:
        judged = _without_hangs(roles, [verdict for verdict in every if verdict.kind != HANG])
    return judged._replace(holding=in_order([*hangs, *judged.holding])) if hangs else judged


def await_last_word(roles: Roles) -> None:
    """Of a job that is over, wait for the judge that still goes through its last steps, some seconds at most: what is
    said in the second in which it ends is then what is said ever after.
    """
    folder = Path(roles.files.path)
    if not judge_lock.is_held(folder) or _RUNNING in roles.processes["state"].to_list():
        return
    deadline = time.monotonic() + _LAST_WORD_S
    while judge_lock.is_held(folder) and time.monotonic() < deadline:
        time.sleep(_LOOKS_EVERY_S)


def _without_hangs(roles: Roles, stored: list[Verdict]) -> JobVerdicts:
    every = in_order(stored)
    withdrawn = tuple(verdict for verdict in every if verdict.withdrawn)
    of_job = JobVerdicts(JOB, tuple(verdict for verdict in every if not verdict.withdrawn), withdrawn=withdrawn)
    if stored and (of_job.blaming or not of_job.holding):
        return of_job
    if are_steps_there_twice(roles.files.stage_rows):
        return of_job if stored else JobVerdicts(NOBODY, why_not=ANEW)
    of_tables = from_steps(roles.steps_inside, roles.by_judge, any(of.is_of_ray for of in roles.files.processes))
    if of_tables.by == NOBODY and not stored:
        # As the job's judge left word of them: what its processes recorded may lie elsewhere.
        state = job_file.read_state(Path(roles.files.path), roles.files.id) or JobState()
        counted = ((role, ENOUGH_STEPS if role.judged_steps is None else role.judged_steps) for role in state.roles)
        compared = (JudgedRole(of.role, of.step, steps) for of, steps in counted if of.members > 1 or of.judged_steps)
        of_job = of_job._replace(roles=tuple(compared))
    return of_job if (stored or of_job.roles) and not of_tables.blaming else of_tables


def from_steps(steps: list[RoleStep], by_judge: JudgedSteps | None = None, is_of_ray: bool = False) -> JobVerdicts:
    """What the judge says of these steps, in their order. `steps`: of a run; `by_judge`: what it says, where that is
    known already; `is_of_ray`: a job of Ray, whose hosts' clocks are compared.
    """
    import numpy as np

    from ..judging import whole_run
    from ..judging.judged import CLOCKS, Want

    roles = {step.role for step in steps if sum(not peer.is_controller for peer in step.members) > 1}
    by_judge = by_judge or whole_run.judge_steps(steps)
    if not roles and not by_judge.standing:  # who is alone is judged by its own past
        return JobVerdicts(NOBODY, why_not=NO_PEER if steps else NO_STEP, withdrawn=in_order(by_judge.withdrawn))
    wants, error_s = by_judge.wants, max(float(step.error_s.max()) for step in steps)
    lasts_s = median(float(np.fmax.reduce(of.left_s, None) - np.fmin.reduce(of.entered_s, None)) for of in steps)
    if error_s > _VAGUE_FROM * lasts_s and not is_of_ray:
        why = f"the clocks of its hosts may be {1e3 * error_s:.0f} ms apart, where a step takes {1e3 * lasts_s:.0f} ms"
        wants += (Want(CLOCKS, "", (), None, 0, 0, why),)
    by_role = tuple(JudgedRole(role, *by_judge.counts[role]) for role in sorted(roles) if role in by_judge.counts)
    return JobVerdicts(
        TABLES, in_order(by_judge.standing), min(len(steps), whole_run.STEPS_AT_MOST), "", wants, by_role,
        in_order(by_judge.withdrawn),
    )  # fmt: skip


def in_order(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Those that blame first, what costs most first."""
    return tuple(sorted(verdicts, key=lambda verdict: (not verdict.is_blaming, -verdict.impact_ratio, verdict.id)))


def ranks_there_twice(processes: pl.DataFrame) -> list[int]:
    """The ranks that two processes of one role were at once, in one attempt at the job, for 5 s or longer.
    `processes`: as `Run.processes()` has them.
    """
    import polars as pl

    own = processes.filter(pl.col("rank").is_not_null() & (pl.col("part") == TRAINER)).sort("start_ns")
    before_ns = pl.col("last_seen_ns").cum_max().shift().over(_PLACE)
    together_ns = pl.min_horizontal(pl.col("last_seen_ns"), before_ns) - pl.col("start_ns")
    twice = own.filter(before_ns.is_not_null() & (together_ns >= _TOGETHER_FROM_NS))
    return sorted(set(twice["rank"].to_list()))


def are_steps_there_twice(stage_rows: pl.DataFrame) -> bool:
    """Does any process count its steps from an earlier one on, by epochs say? Then one number is of several steps.
    `stage_rows`: as `RunFiles.stage_rows` has them.
    """
    import polars as pl

    from ..judging.steps import OVERLAP_STEPS

    rows = stage_rows.filter(pl.col("step").is_not_null()).sort("start_ns")
    return bool(rows.select((pl.col("step").cum_max().over("process") - pl.col("step") > OVERLAP_STEPS).any()).item())
