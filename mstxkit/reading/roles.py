"""The steps of each role of a run as the judge takes them: what tables of where time goes are made of."""

from __future__ import annotations

from functools import cached_property

import polars as pl

from ..judging import whole_run
from ..judging.evidence import RoleStep
from ..judging.gates import Gates
from ..judging.whole_run import JudgedSteps
from . import role_runs
from .role_runs import RoleRun
from .run_files import RunFiles
from .tables import batch_steps, inner_entries, processes, role_steps


class Roles:
    """One run's steps in the forms that tables and the judge need; each is made once, and kept."""

    def __init__(self, files: RunFiles) -> None:
        self.files = files

    @cached_property
    def processes(self) -> pl.DataFrame:
        """Who they are of: `Run.processes()`."""
        return processes.table(self.files)

    @cached_property
    def steps(self) -> list[RoleStep]:
        """In the order in which they ended."""
        return role_steps.of_run(self.files.stage_rows, self.processes)

    @cached_property
    def steps_inside(self) -> list[RoleStep]:
        """The same with what ranges tell of the inside of stages."""
        return inner_entries.add_entries(self.files, self.steps)

    @cached_property
    def _handed_over(self) -> list[RoleStep]:
        return batch_steps.with_rings(self.files.path, self.files.id)

    @cached_property
    def steps_ringed(self) -> list[RoleStep]:
        """Steps of which a ring tells, by step."""
        return batch_steps.pick_waits(self._handed_over, are_taking=False)

    @cached_property
    def runs(self) -> tuple[RoleRun, ...]:
        """The steps of each role as arrays, with what rings and ranges tell of their insides."""
        steps = self.steps if self.steps_ringed else self.steps_inside
        return role_runs.of_steps(batch_steps.join_rings(steps, self._handed_over))

    @cached_property
    def by_judge(self) -> JudgedSteps:
        """What the judge says of them now, whatever was said while the job ran."""
        taking = batch_steps.pick_waits(self._handed_over, are_taking=True)
        return whole_run.judge_steps(batch_steps.join_rings(self.steps_inside, taking), self.files.path)

    @cached_property
    def warm_up(self) -> tuple[int, ...]:
        """Steps that count in no mean: the first two of each attempt of a job in which more than as many follow."""
        attempts = dict(self.processes.select("process", "attempt").iter_rows())
        numbers: dict[tuple[str, int], set[int]] = {}
        for step in self.steps:
            for attempt in {attempts.get(peer.process, 0) for peer in step.members}:
                numbers.setdefault((step.role, attempt), set()).add(step.step)
        first = Gates().first
        return tuple(sorted({step for of in numbers.values() if len(of) > 2 * first for step in sorted(of)[:first]}))

    @property
    def is_steady(self) -> pl.Expr:
        """Which rows of a table with `step` count in a mean; what is of no step does."""
        return ~pl.col("step").is_in(list(self.warm_up)).fill_null(False)

    @cached_property
    def steady(self) -> tuple[RoleRun, ...]:
        """`runs` without the steps of `warm_up`."""
        return tuple(run.without(self.warm_up) for run in self.runs)

    def origin_ns(self) -> int:
        """The instant from which the seconds of steps count; ns on the run's wall clock."""
        return role_steps.origin_ns(self.files.stage_rows)
