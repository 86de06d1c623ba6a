"""What was judged of a run: as its judge has written it while the job ran; else judged here, from the run's own tables.

Everything that calls somebody slow goes by this: the report, "suspect+peer", the demo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, NamedTuple

from ..stages import canonical
from ..store.verdicts import HANG
from .tables import verdicts as stored_verdicts

if TYPE_CHECKING:
    from ..judging.evidence import RoleStep
    from ..judging.judged import Want
    from ..store.verdicts import Verdict
    from .run import Run

# Who judged: the job's own judge while it ran; this reader, from tables; nobody, as there is nothing to judge by.
JOB, TABLES, NOBODY = "job", "tables", "nobody"
# Of a long run the last steps are judged here; a judge of its own sees all.
STEPS_AT_MOST = 2000


class JobVerdicts(NamedTuple):
    """What holds of a run.

    Args:
        by: JOB, TABLES or NOBODY.
        holding: Verdicts that are not withdrawn, those that blame first, by what they cost.
        steps: So many steps were judged; 0 where the job's judge did.
        why_not: Why nobody judged; "" where somebody did.
        wants: What would tell more, as the judge asks for it.
        hiding: Stages that all leave together, and of whose inside nothing tells.
    """

    by: str
    holding: tuple[Verdict, ...] = ()
    steps: int = 0
    why_not: str = ""
    wants: tuple[Want, ...] = ()
    hiding: tuple[str, ...] = ()

    @property
    def blaming(self) -> tuple[Verdict, ...]:
        """Those that name a cause."""
        return tuple(verdict for verdict in self.holding if verdict.is_blaming)


def of_run(run: Run) -> JobVerdicts:
    """What was judged of a run: what lies in it, else what its tables show.

    Where the job's judge lacks evidence, its tables may have it: ranges around collectives.
    """
    every = stored_verdicts.stored(run.path, run.damage)
    # Hangs are seen by others than the judge, also where nobody judges.
    hangs = [verdict for verdict in every if verdict.kind == HANG and not verdict.withdrawn]
    judged = _without_hangs(run, [verdict for verdict in every if verdict.kind != HANG])
    return judged._replace(holding=in_order([*hangs, *judged.holding])) if hangs else judged


def _without_hangs(run: Run, stored: list[Verdict]) -> JobVerdicts:
    of_job = JobVerdicts(JOB, in_order(verdict for verdict in stored if not verdict.withdrawn))
    if stored and (of_job.blaming or not of_job.holding):
        return of_job
    of_tables = from_steps(run.steps_inside(), run.path)
    return of_job if stored and not of_tables.blaming else of_tables


def from_steps(steps: list[RoleStep], path: str = "RUN") -> JobVerdicts:
    """What the judge says of these steps, in their order.

    Args:
        steps: Of a run.
        path: The run's folder, for the commands that it advises.
    """
    from ..judging.judge import JobJudge

    compared = [step for step in steps if sum(not peer.is_controller for peer in step.members) > 1]
    if not compared:
        why = "no two ranks have finished a step together" if steps else "no step is over in which a stage has ended"
        return JobVerdicts(NOBODY, why_not=why)
    judge = JobJudge(run=path)
    wants: list[Want] = []
    for step in steps[-STEPS_AT_MOST:]:
        wants += judge.close(step).wants
    judged = min(len(steps), STEPS_AT_MOST)
    return JobVerdicts(TABLES, in_order(judge.standing()), judged, "", tuple(wants[-1:]), _hiding(steps))


def _hiding(steps: list[RoleStep]) -> tuple[str, ...]:
    from .tables import inner_entries, lateness

    last = steps[-inner_entries.STEPS_AT_MOST :]
    seen = {
        step.stages[stage] for step in last if step.collectives is not None for stage in set(step.collectives.stage)
    }
    return tuple(sorted({stage for _, stage in lateness.synchronising(last)} - seen))


def in_order(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Those that blame first, what costs most first."""
    return tuple(sorted(verdicts, key=lambda verdict: (not verdict.is_blaming, -verdict.impact_ratio, verdict.id)))


def names_rank_in(verdict: Verdict, stage: str) -> bool:
    """Does it blame a rank, in this stage, by any name of it?"""
    of_it = verdict.stage is not None and canonical(verdict.stage) == canonical(stage)
    return verdict.is_blaming and verdict.rank is not None and of_it
