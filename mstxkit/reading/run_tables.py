"""Tables of where a run's time goes: steps, ranks, stragglers, waiting, tails, throughput, and what mending would save.

`Run` has them. All of them are made of the same steps, which are cut into pieces once and kept: see `role_runs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from .run_files import RunFiles

if TYPE_CHECKING:
    import polars as pl

    from ..judging.evidence import RoleStep
    from ..store.metrics_setting import ByStage
    from .role_runs import RoleRun
    from .run import Run


class RunTables(RunFiles):
    """What `Run` has beside the tables of what was recorded."""

    _steps: list[RoleStep] | None = None
    _steps_inside: list[RoleStep] | None = None
    _steps_ringed: list[RoleStep] | None = None
    _role_runs: tuple[RoleRun, ...] | None = None

    def role_steps(self) -> list[RoleStep]:
        """The steps of each role as the judge takes them, in the order in which they ended; made once, and kept."""
        from .tables import role_steps

        if self._steps is None:
            self._steps = role_steps.of_run(cast("Run", self))
        return self._steps

    def steps_inside(self) -> list[RoleStep]:
        """The same with what ranges tell of the inside of stages; made once, and kept."""
        from .tables import inner_entries

        if self._steps_inside is None:
            self._steps_inside = inner_entries.added(cast("Run", self), self.role_steps())
        return self._steps_inside

    def steps_ringed(self) -> list[RoleStep]:
        """Steps of which a ring tells, by step; made once, and kept."""
        from .tables import batch_steps

        if self._steps_ringed is None:
            self._steps_ringed = batch_steps.with_rings(cast("Run", self))
        return self._steps_ringed

    def role_runs(self) -> tuple[RoleRun, ...]:
        """The steps of each role as arrays, with what rings and ranges tell of their insides; made once, and kept."""
        from . import role_runs
        from .tables import batch_steps

        if self._role_runs is None:
            ringed = self.steps_ringed()
            steps = batch_steps.joined(self.role_steps(), ringed) if ringed else self.steps_inside()
            self._role_runs = role_runs.of_steps(steps)
        return self._role_runs

    def steps(self) -> pl.DataFrame:
        """`step, role, ranks, start_ns, end_ns, duration_ns, wait_ns, wait_ratio, gate_rank, gate_stage, gate_more_ns`.

        How long each step of each role took, what a rank waits for others in it, and who held it up.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"):
            ...     for number in range(2):
            ...         mstxkit.step(number)
            ...         with mstxkit.stage("reward"): pass
            >>> mstxkit.open_run("runs/exp7").steps()["step"].to_list()
            [0, 1]
        """
        from .tables import role_steps, step_lengths

        return step_lengths.table(self.role_runs(), role_steps.origin_ns(cast("Run", self)))

    def ranks(self) -> pl.DataFrame:
        """`role, rank, host, steps, work_ns, gap_ns, wait_ns, wait_ratio, excess_ratio, excess_stage, gated_steps`.

        What a step's time of each rank goes to: work of its own, and waiting for others. Means of a step.
        """
        from .tables import ranks

        return ranks.table(self.role_runs())

    def stragglers(self) -> pl.DataFrame:
        """`role, stage, where, rank, host, first_step, last_step, steps, effect_ratio, more_ns, step_ratio, …`.

        Then `confidence`. Who takes longer than the others for the same work; whoever only waits is not among them.
        """
        from .tables import stragglers

        return stragglers.table(self.role_runs())

    def bubbles(self) -> pl.DataFrame:
        """`step, role, stage, where, rank, wait_ns, gate_rank, gate_stage, gate_where, gate_more_ns`.

        How long each rank waited in each step, for which rank, and where that one was longer than the others.
        """
        from .tables import bubbles

        return bubbles.table(self.role_runs())

    def lateness(self) -> pl.DataFrame:
        """`step, group, rank, stage, late_ns, error_ns, source`: how much later than the first a rank entered a stage.

        Of stages in which the ranks of a group wait for each other. `late_ns` that is smaller than `error_ns`, the
        bound of its error, says nothing. `source`: flight_recorder, stage_entry; device, of profiles that `mstxkit
        analyse` has parsed: who waits least is late, and the bound is the collective's own shortest duration.
        """
        return self.role_lateness().drop("role")

    def role_lateness(self) -> pl.DataFrame:
        """`lateness()`, and of which `role`; null of device ranges, which do not tell."""
        from .tables import lateness

        return lateness.table(cast("Run", self), self._chosen)

    def device(self) -> pl.DataFrame:
        """What devices did in each stage of each step, from imports and the run's own profiles (`tables/device.py`)."""
        from .tables import device

        return device.table(cast("Run", self), self._chosen)

    def critical_path(self) -> pl.DataFrame:
        """`step, role, place, rank, stage, where, start_ns, duration_ns, more_ns`: what each step's time went to.

        Across ranks and stages, one after the other; a step's durations add up to its length.
        """
        from .tables import critical_path, role_steps

        return critical_path.table(self.role_runs(), role_steps.origin_ns(cast("Run", self)))

    def tails(self) -> pl.DataFrame:
        """`step, role, stage, ranks, middle_ns, p90_ns, last_ns, tail_ns, tail_ratio, idle_ns, last_rank, tokens, …`.

        How long stages that tell of their work go on after most ranks are done: generation's long tail.
        """
        from .tables import tails

        return tails.table(self.role_runs())

    def samples(self) -> pl.DataFrame:
        """`step, rank, process, stage, start_ns, duration_ns, tokens, samples, alone_ns, is_last`.

        Single samples of generation, where each has a range of its own; `alone_ns`: how long the last went on alone.
        """
        from .tables import samples

        return samples.table(cast("Run", self).occurrences())

    def links(self) -> pl.DataFrame:
        """`role, stage, group, members, steps, took_ns, others_ns, more_ns`: what collectives take once all are in."""
        from .tables import links

        return links.table(self.role_runs())

    def resharding(self) -> pl.DataFrame:
        """`step, role, kind, stage, ranks, cost_ns, last_ns, step_ratio`: weights that move, and controllers' calls."""
        from .tables import resharding, waits

        return resharding.table(self.role_runs(), waits.in_steps(cast("Run", self).waits()))

    def what_if(self, *, trainers: int | None = None, rollouts: int | None = None) -> pl.DataFrame:
        """`kind, role, stage, where, rank, group, trainers, rollouts, first_step, last_step, step_ns, without_ns, …`.

        How long a step would take without this straggler, wait, link or tail, and, of async jobs, with other numbers of
        trainers and rollouts: `without_ns`, then `saved_ns, saved_ratio, error_ratio`. What saves most comes first.

        Args:
            trainers, rollouts: Of an async job: the row of kind `split` with these numbers is there too, whatever it
                saves. None: as many as there are.

        Raises:
            ReadError: such numbers are asked for, and they are below 1, or the job has no two roles that tell of them.
        """
        from . import judged
        from .tables import split, what_if

        verdicts = judged.of_run(cast("Run", self)).blaming
        return what_if.table(self.role_runs(), verdicts, split.asked_for(trainers, rollouts))

    def throughput(self, flops_per_token: ByStage | None = None, peak_flops: ByStage | None = None) -> pl.DataFrame:
        """`step, role, stage, ranks, tokens, responses, stage_ns, step_ns, tokens_per_s, step_tokens_per_s, mfu_ratio`.

        Args:
            flops_per_token: Operations that a token costs (training: about 6 a parameter): a number for all stages, or
                a dict of one for each.
            peak_flops: Operations a second of one rank, in the same form; without both, `mfu_ratio` is null.

        Raises:
            ReadError: one of the two is neither a number above 0 nor one for each stage.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> len(mstxkit.open_run("runs/exp7").throughput(6 * 7e9, 3.5e14))
            0
        """
        from .tables import throughput

        return throughput.table(self.role_runs(), flops_per_token, peak_flops)

    def overhead(self) -> pl.DataFrame:
        """`rank, host, pid, role, label, native, own_cost_ratio, own_cost_ns, lasted_ns`: what recording cost."""
        from .tables import overhead

        return overhead.overhead(cast("Run", self).processes())

    def drops(self) -> pl.DataFrame:
        """`rank, host, pid, role, label, kind, count`: what was not recorded, or not kept."""
        from .tables import overhead

        return overhead.drops(cast("Run", self).processes())

    def sql(self, query: str, engine: str = "polars") -> pl.DataFrame:
        """What a SELECT over the run's tables gives, each by the name of its method; nothing else can be read.

        *Cost*: of the tables that the query names.

        Args:
            query: One SELECT, or WITH … SELECT. Name aggregates with `as`: else each engine has its own name for them.
            engine: "polars", or "duckdb" where that is installed.

        Raises:
            ReadError: it is no such query, or it names what there is not; the message has the tables, or the columns.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> mstxkit.open_run("runs/exp7").sql("select stage, count(*) as n from stages group by stage").rows()
            [('reward', 1)]
        """
        from . import sql

        return sql.answer(cast("Run", self), query, engine)
