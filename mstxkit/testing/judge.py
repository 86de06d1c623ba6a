"""Have your own data judged: who made the others wait, from plain tables of stages and hand-overs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Mapping, NamedTuple

if TYPE_CHECKING:
    from ..judging.evidence import RoleStep
    from ..judging.judge import JobJudge
    from ..judging.judged import Want
    from ..store.verdicts import Verdict


class StepJudged(NamedTuple):
    """What came of one step of one role.

    Args:
        step: As it was judged: members, stages and times, as arrays.
        verdicts: What was said: each is new, has changed, or is withdrawn.
        wants: What else the judge asked for.
    """

    step: RoleStep
    verdicts: tuple[Verdict, ...]
    wants: tuple[Want, ...]


class JobJudged:
    """A job that is judged step by step, in the order in which steps are over.

    Attributes:
        judge: Who judges it: of the last attempt, once steps have been gone through.
        steps: Each step, and what came of it.
    """

    def __init__(self, steps: Iterator[RoleStep], judge: JobJudge) -> None:
        self.judge, self.steps = judge, list[StepJudged]()
        for step in steps:
            if self.judge.is_of_next_attempt(step):
                self.judge = self.judge.of_next_attempt()
            self.steps.append(StepJudged(step, *self.judge.close(step)))

    @property
    def verdicts(self) -> list[Verdict]:
        """What stands at the end, the costliest first."""
        return sorted(self.judge.standing(), key=lambda verdict: -verdict.impact_ratio)


def judge(
    occurrences: Any, *, hand_overs: Any = None, collectives: Any = None,
    groups: Mapping[Any, tuple[int, ...]] | None = None, hosts: Mapping[int, str] | None = None,
    settings: Mapping[str, float] | None = None,
) -> JobJudged:  # fmt: skip
    """Judge a job of which there are tables: rows (dicts or named tuples), or columns by name.

    Args:
        occurrences: One row for each time that a process was in a stage: `step`, `stage`, `entered_ns`, `left_ns`
            (None: it never left), all on one clock. Besides, where they are known: `rank`, `role` ("controller": it
            calls the others), `process`, `host`, `place` (its part of the model, "pp1"), `attempt` (counted from 0),
            `error_ns` (bound of its clock's error), `tokens`, `responses`, `longest_response`, and `waits_for`: the
            stage only waits, for that role, "controller", "loader", or "" for whom nobody says; None: it does not.
        hand_overs: One row for each thing that is sent and received: `from_rank`, `to_rank`, `sent_ns`, `entered_ns`
            and `left_ns` of who receives; `role`, `attempt`.
        collectives: One row for each entry: `rank`, `group`, `entered_ns`, `left_ns` (None: not known), and `role`,
            `attempt`, `sequence` (which of its group's; else they are counted), `kind` ("meet", "send", "receive"). In
            which stage it was is seen by its time.
        groups: Which ranks a group has.
        hosts: The host of each rank, where the rows do not say.
        settings: Other settings of the judge, by name (`slow_rank.effect`).

    Returns:
        What was said of each step, what stands at the end, and the judge.

    Example:
        >>> from mstxkit.testing import judge
        >>> rows, now = [], 0
        >>> for step in range(60):
        ...     took = [30_000_000 + (7 * rank + 13 * step) % 11 * 100_000 for rank in range(4)]
        ...     took[2] += 20_000_000 if step >= 30 else 0
        ...     met = now + max(took) + 20_000_000
        ...     for rank in range(4):
        ...         who, done = {"rank": rank, "step": step}, now + took[rank]
        ...         rows.append({**who, "stage": "rollout", "entered_ns": now, "left_ns": done})
        ...         rows.append({**who, "stage": "train", "entered_ns": done, "left_ns": met})
        ...     now = met
        >>> [(verdict.kind, verdict.rank, verdict.stage) for verdict in judge(rows).verdicts]
        [('compute', 2, 'rollout')]
    """
    from ..judging import settings as judge_settings
    from ..judging.judge import JobJudge
    from .job_tables import steps_of

    chosen = judge_settings.default_settings()
    for name, value in (settings or {}).items():
        chosen = judge_settings.change_setting(chosen, name, str(value))
    return JobJudged(steps_of(occurrences, hand_overs, collectives, groups or {}, hosts or {}), JobJudge(chosen))
