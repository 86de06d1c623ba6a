"""A run, opened: the files of any number of processes, live, finished, killed or damaged, as tables on one clock.

Nothing in a run's folder makes the reader raise anything but an `MstxkitError`; what could not be read is listed in
`Run.damage`. Needs `pip install 'mstxkit[report]'`.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Iterable, Iterator

from ..errors import MissingPackageError, MstxkitError, ReadError
from ..store import layout, run_file
from . import tables
from .folder import Damage

if TYPE_CHECKING:
    import polars as pl

    from ..store.metrics_setting import ByStage
    from .roles import Roles
    from .run_files import RunFiles
    from .selection import Moment, Numbers

__all__ = ["Damage", "Run", "open_run"]
OLDEST_POLARS = (1, 28)


def open_run(
    path: str | os.PathLike[str], *, ranks: Numbers = None, steps: Numbers = None, since: Moment = None,
    until: Moment = None, stages: str | Iterable[str] | None = None,
) -> Run:  # fmt: skip
    """Open the run in the folder `path`: what is there now, also while its processes go on writing.

    What is not asked for is not read: of other ranks a few kilobytes, of other steps, times and stages nothing that an
    index tells of. A table then holds what a table of the whole run holds of it; where only some ranks of a host are
    read, the wall clock is taken from these.

    Args:
        path: The run's folder; what `capture` was given.
        ranks: Only processes of this rank, or of these.
        steps: Only ranges and marks of this step, or of these.
        since: Only what goes on at this time or later: whole ns since 1970, or a `datetime` with a time zone.
        until: Only what began before this time.
        stages: Only what is in this stage, or in one of these, by any of their names.

    *Cost*: of each file the index at its end is read, of one that has none yet the heads of its blocks; records are
    read, checked and decoded when a table is asked for.

    Raises:
        ReadError: there is no run at `path`, or what is asked for cannot be.
        MstxkitError: numpy or polars is not installed, or too old.

    Example:
        >>> import mstxkit
        >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
        >>> run = mstxkit.open_run("runs/exp7")
        >>> run.stages()["stage"].to_list(), run.damage
        (['reward'], [])
    """
    try:
        import numpy  # noqa: F401
        import polars
    except ImportError as exc:
        raise MissingPackageError(exc.name, "reading a run") from exc
    if tuple(map(int, polars.__version__.split(".")[:2])) < OLDEST_POLARS:
        raise MstxkitError(f"reading a run needs a newer polars than {polars.__version__}: pip install -U polars")
    folder = os.fspath(path)
    if not layout.is_run(folder):
        raise ReadError(run_file.why_none(folder))
    from .run_files import RunFiles
    from .selection import make_selection

    folder = os.path.realpath(folder) if os.path.islink(folder) else folder  # inside it no link is followed
    return Run(RunFiles(folder, make_selection(ranks, steps, since, until, stages)))


class Run:
    """One run, as it was when it was opened: its tables. Times are integer ns on the run's aligned wall clock.

    `open_run` makes it. A table is made when it is asked for, of the run's `files`.

    Args:
        files: What there is of it.

    Attributes:
        path: its folder.
        id: its id, "" if run.json cannot be read.
        damage: what could not be read: `path`, `offset`, `size`, `reason`. A block is checked when it is used, so a
            table may add to it.

    Example:
        >>> import mstxkit
        >>> with mstxkit.capture("runs/exp7"):
        ...     for number in range(2):
        ...         with mstxkit.at_step(number), mstxkit.stage("reward"): mstxkit.mark("scored")
        >>> run = mstxkit.open_run("runs/exp7")
        >>> run.steps()["step"].to_list(), run.marks()["message"].to_list()
        ([0, 1], ['scored', 'scored'])
    """

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        self.path, self.id, self.damage = files.path, files.id, files.damage

    def __repr__(self) -> str:
        return f"<Run {self.path!r}: {len(self.files.processes)} processes, {len(self.damage)} places damaged>"

    @cached_property
    def roles(self) -> Roles:
        """The steps of each role, which tables of where time goes are made of."""
        from .roles import Roles

        return Roles(self.files)

    def ranges(self, attributes: bool | Iterable[str] = True) -> pl.DataFrame:
        """Every range, process by process in the order in which they ended, then those that are open.

        `rank, host, pid, role, track, depth, step, domain, stage, name, start_ns, duration_ns, busy_ns, open, error,
        attributes, part`. What a controller waits for has no rank, and `part` driver. *Cost*: 10 million ranges take
        about a second and 100 bytes each; half a microsecond for each attribute in `attributes`, the JSON text.

        Args:
            attributes: Names of attributes that become columns too, after the others: Int64, Float64, Boolean or
                String, by what they hold. False: without the JSON text.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> mstxkit.open_run("runs/exp7").ranges().select("name", "stage", "open", "error").rows()
            [('reward', 'reward', False, False)]
        """
        return self.files.ranges(attributes)

    def marks(self, attributes: bool | Iterable[str] = True) -> pl.DataFrame:
        """`rank, host, pid, track, step, domain, stage, message, time_ns, attributes`, process by process.

        Args:
            attributes: As of `ranges`.
        """
        return self.files.marks(attributes)

    def batches(self, rows: int = 1 << 17, backwards: bool = False) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """(ranges, marks) in pieces of about `rows` rows, for what must not hold a whole run in memory.

        First the columns `process`, the row in `processes()` (pids are unique on their host only), and for ranges
        `is_stage`: an occurrence of a stage of its own. `backwards`: from the last row to the first, open ranges before
        all others; what encloses a range comes before it.

        Args:
            rows: About so many at a time.
            backwards: From the last row to the first.
        """
        return self.files.batches(rows, backwards)

    def open_ranges(self) -> pl.DataFrame:
        """What processes are inside of, or were when they ended: `process`, then as `ranges()`."""
        return self.files.open_ranges()

    def occurrences(self) -> pl.DataFrame:
        """The outermost occurrences of stages, ended ones only, without what a controller waits for: that is no work.

        `process, rank, host, pid, role, track, depth, step, stage, start_ns, duration_ns, tokens, prompts, part,
        waits_for, responses, longest_response`; `process` is the row in `processes()`, `tokens`, `prompts`, `responses`
        and `longest_response` are attributes that are numbers.
        """
        return tables.stages.pick_outermost(tables.waits.only_work(self.files.stage_rows))

    def stages(self) -> pl.DataFrame:
        """`step, stage, rank, role, pid, count, total_ns, start_ns, end_ns, part, waits_for`, by step, stage and rank.

        `count` of outermost occurrences that have ended, `total_ns` the union of their time in that process. What a
        controller waits for has rows of its own: `waits_for` says for whom, `part` is `driver`, `rank` null.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> mstxkit.open_run("runs/exp7").stages().select("stage", "count").rows()
            [('reward', 1)]
        """
        return tables.waits.stage_table(self.files.stage_rows)

    def waits(self) -> pl.DataFrame:
        """What controllers waited for in each stage, and how much of that time their workers were busy with it.

        `step, stage, process, host, pid, role, count, waited_ns, busy_ns, unaccounted_ns, before_ns, between_ns,
        after_ns, slowest, slowest_ns`: `process` and `slowest` are rows in `processes()`.
        """
        return tables.waits.table(self.files.stage_rows)

    def processes(self) -> pl.DataFrame:
        """One row a process, by rank, its own before those beside it, as they were started.

        `rank, host, pid, role, part, world_size, start_ns, last_seen_ns, native, dropped, coalesced, faults,
        clock_error_ns, own_cost_ratio, state`, and beyond the contract `ending` (how it came to its state, where there
        is more to say), `attempt` (of the job, from 0 on), `under` (what it works under; null for a rank's own
        process), `place` (which part of the model it has, "pp1"), `label` (what reports and traces call it, and no
        other process of the run), further counters, `clock` and `process`, the name of its files. Counters of a killed
        process are those of its last block or live file.
        """
        return tables.processes.table(self.files)

    def tracks(self) -> pl.DataFrame:
        """`process, rank, host, pid, track, thread, is_task, name, is_shared`: what the tracks of each process are.

        `name` is that of the thread in Python when it first recorded, null in runs from before it was kept. Threads
        that come one after the other may share a track, which then has the last one's name, and `is_shared`.
        """
        return self.files.tracks()

    def patches(self) -> pl.DataFrame:
        """`process, rank, host, pid, role, framework, path, state, reason, detail, tier, version, calls`: what became
        of each target of `autopatch` in each process. No rows for a process in which nothing was patched. `version`: in
        words, where autopatch does not know it; `calls`: null where they were not counted for the target alone.
        """
        return tables.processes.patch_table(self.files)

    def trainer_settings(self) -> dict[str, list[str]]:
        """Numbers and switches of trainers that `autopatch` knows, by name; several values where processes differ.

        Empty where nobody knows. Texts are not kept, and no setting that is called like a secret.
        """
        return tables.processes.trainer_settings(self.files)

    def escalations(self) -> pl.DataFrame:
        """`request, stage, rank, state, first_step, last_step, start_ns, end_ns, preset, folder, reason`.

        One row a request, stage and rank, oldest request first: how it stands by the newest word of the rank, the steps
        really recorded (the window, while none are), when recording began and ended (null: not), where the profiles
        lie, below the run. A rank that says nothing is queued, and expired when the request's time is over. *Cost*:
        reads a small file for each rank and each profile.
        """
        return tables.escalations.table(self.files)

    def profiles(self) -> pl.DataFrame:
        """`request, stage, step, rank, host, state, place, bytes, start_ns, end_ns, preset, folder, reason`.

        One row a session, light capture too (its request is ""). `place` says where its data are: `run`, below
        `folder`; `host`, on the own disk of `host`; `removed`, to make room; `none`, where there are none. Times are
        those of the host's own clock.
        """
        return tables.profiles.table(self.path, self.id, self.damage)

    def verdicts(self) -> pl.DataFrame:
        """What was judged of the job, oldest first: `rank` and `stage` are the cause, never who waited for it.

        `time_ns, step, kind, stage, rank, role, since_step, impact_ratio, coverage_ratio, confidence, waits_for,
        evidence, next, request, recurrence_ratio, group, withdrawn, no_request`: each verdict as it was said last;
        `evidence` is JSON, `withdrawn` says why it holds no more (null: it does), `no_request` why it asked for no
        profile, or what came of none. No rows where nobody judged the job while it ran.
        """
        return tables.findings.verdict_table(self.path, self.files.chosen, self.damage)

    def incidents(self) -> pl.DataFrame:
        """Hangs, deaths, and what else was looked at closely while the job ran, oldest first.

        `incident, time_ns, kind, stage, range, rank, role, since_ns, waits_for, reports, page, reason`: `kind` is hang,
        killed, signal, exception or request; `rank`, `stage`, `range` the cause (null: nobody alone is), never who
        waited for it; `since_ns` when it was entered; `page` is readable text, relative to the run.
        """
        return tables.findings.incident_table(self.path, self.id, self.files.chosen, self.damage)

    def steps(self) -> pl.DataFrame:
        """`step, role, ranks, start_ns, end_ns, duration_ns, wait_ns, wait_ratio, gate_rank, gate_stage, gate_more_ns`.

        How long each step of each role took, what a rank waits for others in it, and who held it up.
        """
        return tables.steps.table(self.roles.runs, self.roles.origin_ns(), self.files.processes)

    def ranks(self) -> pl.DataFrame:
        """`role, rank, host, steps, work_ns, gap_ns, wait_ns, wait_ratio, excess_ratio, excess_stage, gated_steps`.

        What a step's time of each rank goes to: work of its own, and waiting for others. Means of a step, warm-up left
        out.
        """
        return tables.steps.rank_table(self.roles.steady)

    def stragglers(self) -> pl.DataFrame:
        """`role, stage, where, rank, host, first_step, last_step, steps, effect_ratio, more_ns, step_ratio, …`.

        Then `confidence`. Who takes longer than the others for the same work; whoever only waits is not among them.
        """
        from . import judged

        return tables.stragglers.table(self.roles.steady, judged.of_run(self.roles).every)

    def bubbles(self) -> pl.DataFrame:
        """`step, role, stage, where, rank, wait_ns, gate_rank, gate_stage, gate_where, gate_more_ns`.

        How long each rank waited in each step, for which rank, and where that one was longer than the others.
        """
        return tables.bubbles.table(self.roles.runs)

    def lateness(self) -> pl.DataFrame:
        """`step, group, rank, stage, late_ns, error_ns, source`: how much later than the first a rank entered a stage.

        Of stages in which the ranks of a group wait for each other. `late_ns` that is smaller than `error_ns`, the
        bound of its error, says nothing. `source`: flight_recorder, stage_entry; device, of profiles that were parsed:
        who is in a collective the shortest came last, if all leave it within that time, which is the bound.
        """
        return tables.lateness.table(self.files, self.roles.steps, self.roles.steps_ringed).drop("role")

    def device(self) -> pl.DataFrame:
        """What devices did in each stage of each step, from imports and the run's own profiles (`tables/device.py`)."""
        return tables.device.table(self.files)

    def critical_path(self) -> pl.DataFrame:
        """`step, role, place, rank, stage, where, start_ns, duration_ns, more_ns`: what each step's time went to.

        Across ranks and stages, one after the other; a step's durations add up to its length.
        """
        return tables.critical_path.table(self.roles.runs, self.roles.origin_ns())

    def tails(self) -> pl.DataFrame:
        """`step, role, stage, ranks, middle_ns, p90_ns, last_ns, tail_ns, tail_ratio, idle_ns, last_rank, tokens, …`.

        How long stages that tell of their work go on after most ranks are done: generation's long tail.
        """
        return tables.tails.table(self.roles.runs)

    def samples(self) -> pl.DataFrame:
        """`step, rank, process, stage, start_ns, duration_ns, tokens, samples, alone_ns, is_last`.

        Single samples of generation, where each has a range of its own; `alone_ns`: how long the last went on alone.
        """
        return tables.tails.list_samples(self.occurrences())

    def links(self) -> pl.DataFrame:
        """`role, stage, group, members, steps, took_ns, others_ns, more_ns`: what collectives take once all are in."""
        return tables.lateness.link_table(self.roles.runs)

    def resharding(self) -> pl.DataFrame:
        """`step, role, kind, stage, ranks, cost_ns, last_ns, step_ratio`: weights that move, and controllers' calls."""
        return tables.resharding.table(self.roles.runs, tables.waits.in_steps(self.waits()))

    def what_if(self, *, trainers: int | None = None, rollouts: int | None = None) -> pl.DataFrame:
        """`kind, role, stage, where, rank, group, trainers, rollouts, first_step, last_step, step_ns, without_ns, …`.

        How long a step would take without this straggler, wait, link or tail, and, of async jobs, with other numbers of
        trainers and rollouts: `without_ns`, then `saved_ns, saved_ratio, error_ratio, who`. Warm-up left out; what
        saves most comes first.

        Args:
            trainers, rollouts: Of an async job: the row of kind `split` with these numbers is there too, whatever it
                saves. None: as many as there are.

        Raises:
            ReadError: such numbers are asked for, and they are below 1, or the job has no two roles that tell of them.
        """
        from . import judged

        verdicts = judged.of_run(self.roles).every
        return tables.what_if.table(self.roles.steady, verdicts, tables.split.asked_for(trainers, rollouts))

    def throughput(self, flops_per_token: ByStage | None = None, peak_flops: ByStage | None = None) -> pl.DataFrame:
        """`step, role, stage, ranks, tokens, responses, stage_ns, step_ns, tokens_per_s, step_tokens_per_s, mfu_ratio`.

        Args:
            flops_per_token: Operations that a token costs (training: about 6 a parameter): a number for all stages, or
                a dict of one for each.
            peak_flops: Operations a second of one rank, in the same form; without both, `mfu_ratio` is null.

        Raises:
            ReadError: one of the two is neither a number above 0 nor one for each stage.
        """
        return tables.throughput.table(self.roles.runs, flops_per_token, peak_flops)

    def overhead(self) -> pl.DataFrame:
        """`rank, host, pid, role, label, native, own_cost_ratio, own_cost_ns, lasted_ns`: what recording cost."""
        return tables.processes.measure_overhead(self.processes())

    def drops(self) -> pl.DataFrame:
        """`rank, host, pid, role, label, kind, count`: what was not recorded, or not kept."""
        return tables.processes.list_drops(self.processes())

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

        return sql.answer_query({name: getattr(self, name) for name in sql.TABLES}, query, engine)
