"""A run, opened: the files of any number of processes, live, finished, killed or damaged, as tables on one clock.

Nothing in a run's folder makes the reader raise anything but an `MstxkitError`; what could not be read is listed in
`Run.damage`. Needs `pip install 'mstxkit[report]'`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Iterable, Iterator

from ..errors import MstxkitError, ReadError
from ..store import layout, patch_record, run_file
from ..store.dataset import MARKS, RANGES
from .folder import Damage
from .processes import row_of
from .run_tables import RunTables

if TYPE_CHECKING:
    import polars as pl

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
        raise MstxkitError(f"reading a run needs {exc.name}: pip install 'mstxkit[report]'") from exc
    if tuple(map(int, polars.__version__.split(".")[:2])) < OLDEST_POLARS:
        raise MstxkitError(f"reading a run needs a newer polars than {polars.__version__}: pip install -U polars")
    folder = os.fspath(path)
    if not layout.is_run(folder):
        raise ReadError(run_file.why_none(folder))
    from .selection import selection

    folder = os.path.realpath(folder) if os.path.islink(folder) else folder  # inside it no link is followed
    return Run(folder, selection(ranks, steps, since, until, stages))


class Run(RunTables):
    """One run, as it was when it was opened. Times are integer ns on the run's aligned wall clock. `open_run` makes it.

    Args:
        path: Its folder.
        chosen: What of it is asked for; None for all.
        sealed_files: These alone, and nothing that is live or was compacted; None: all there is.

    Attributes:
        path: its folder.
        id: its id, "" if run.json cannot be read.
        damage: what could not be read: `path`, `offset`, `size`, `reason`. A block is checked when it is used, so a
            table may add to it.

    Example:
        >>> import mstxkit
        >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"):
        ...     mstxkit.mark("scored")
        >>> run = mstxkit.open_run("runs/exp7")
        >>> len(run.ranges()), len(run.marks())
        (1, 1)
    """

    def __repr__(self) -> str:
        return f"<Run {self.path!r}: {len(self._processes)} processes, {len(self.damage)} places damaged>"

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
        from . import frames

        need = frames.need_of(attributes)
        pieces = list(self._pieces(need=need, kinds=(RANGES,)))  # all of them first: only then every text is known
        finisher = self._finisher()
        return frames.together([finisher.ranges(pieces.pop(0), need=need) for _ in range(len(pieces))])

    def marks(self, attributes: bool | Iterable[str] = True) -> pl.DataFrame:
        """`rank, host, pid, track, step, domain, stage, message, time_ns, attributes`, process by process.

        Args:
            attributes: As of `ranges`.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"):
            ...     mstxkit.mark("scored")
            >>> mstxkit.open_run("runs/exp7").marks().select("message", "stage").rows()
            [('scored', 'reward')]
        """
        from . import frames

        need = frames.need_of(attributes)
        pieces = self._pieces(need=need, kinds=(MARKS,))
        marked = frames.together([frames.only_marks(piece) for piece in pieces])
        return self._finisher().marks(marked, need=need)

    def batches(self, rows: int = 1 << 17, backwards: bool = False) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """(ranges, marks) in pieces of about `rows` rows, for what must not hold a whole run in memory.

        First the columns `process`, the row in `processes()` (pids are unique on their host only), and for ranges
        `is_stage`: an occurrence of a stage of its own. `backwards`: from the last row to the first, open ranges before
        all others; what encloses a range comes before it.

        Args:
            rows: About so many at a time.
            backwards: From the last row to the first.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"):
            ...     mstxkit.mark("scored")
            >>> [(len(ranges), len(marks)) for ranges, marks in mstxkit.open_run("runs/exp7").batches()]
            [(1, 1), (0, 0)]
        """
        from .rows import ALL

        backward = (piece.reverse() for piece in self.coded(ALL, rows))
        for piece in backward if backwards else self._pieces(rows):
            finisher = self._finisher()
            yield finisher.ranges(piece, with_process=True), finisher.marks(piece, with_process=True)

    def occurrences(self) -> pl.DataFrame:
        """The outermost occurrences of stages, ended ones only, without what a controller waits for: that is no work.

        `process, rank, host, pid, role, track, depth, step, stage, start_ns, duration_ns, tokens, prompts, part,
        waits_for, responses, longest_response`; `process` is the row in `processes()`, `tokens`, `prompts`, `responses`
        and `longest_response` are attributes that are numbers.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> mstxkit.open_run("runs/exp7").occurrences().select("stage", "depth").rows()
            [('reward', 0)]
        """
        from .tables import stages, waits

        return stages.outermost(waits.only_work(self.stage_rows()))

    def waits(self) -> pl.DataFrame:
        """What controllers waited for in each stage, and how much of that time their workers were busy with it.

        `step, stage, process, host, pid, role, count, waited_ns, busy_ns, unaccounted_ns, before_ns, between_ns,
        after_ns, slowest, slowest_ns`: `process` and `slowest` are rows in `processes()`.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> len(mstxkit.open_run("runs/exp7").waits())
            0
        """
        from .tables import waits

        return waits.table(self.stage_rows())

    def stage_rows(self) -> pl.DataFrame:
        """Every occurrence of a stage, open and nested ones and those that wait too; columns as `occurrences()`.

        Decoded once, and kept.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> mstxkit.open_run("runs/exp7").stage_rows()["stage"].to_list()
            ['reward']
        """
        if self._stage_rows is None:
            self._stage_rows = self.decoded_stage_rows()
        return self._stage_rows

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
        import polars as pl

        from .tables import stages, waits

        rows = self.stage_rows()
        work = stages.outermost_in_any_order(waits.only_work(rows))
        return stages.table(pl.concat([work, waits.only_waits(rows)]))

    def open_ranges(self) -> pl.DataFrame:
        """What processes are inside of, or were when they ended: `process`, then as `ranges()`.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> len(mstxkit.open_run("runs/exp7").open_ranges())
            0
        """
        from .rows import ALL

        rows = self._open_rows(ALL)
        return self._finisher().ranges(rows, with_process=True)

    def processes(self) -> pl.DataFrame:
        """One row a process, by rank, its own process before those beside it.

        `rank, host, pid, role, part, world_size, start_ns, last_seen_ns, native, dropped, coalesced, faults,
        clock_error_ns, own_cost_ratio, state`, and beyond the contract `ending` (how it came to its state, where there
        is more to say), `attempt` (of the job, from 0 on), `under` (what it works under; null for a rank's own
        process), `place` (which part of the model it has, "pp1"), `label` (what reports and traces call it, and no
        other process of the run), further counters, `clock`
        and `process`, the name of its files. Counters of a killed process are those of its last block or live file.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> len(mstxkit.open_run("runs/exp7").processes())
            1
        """
        import polars as pl

        from . import endings, frames, labels
        from .tables import incidents

        seen = dict(self.open_ranges().group_by("process").agg(pl.col("start_ns").max()).iter_rows())
        judged = endings.of_run(self._processes, seen, incidents.stored(self.path, self.id, self.damage))
        rows = [row_of(process, seen.get(process.index, 0), judged[process.index]) for process in self._processes]
        return pl.DataFrame(labels.with_labels(rows), schema=frames.PROCESS_SCHEMA)

    def tracks(self) -> pl.DataFrame:
        """`process, rank, host, pid, track, thread, is_task, name, is_shared`: what the tracks of each process are.

        `name` is that of the thread in Python when it first recorded, null in runs from before it was kept. Threads
        that come one after the other may share a track, which then has the last one's name, and `is_shared`.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> mstxkit.open_run("runs/exp7").tracks()["name"].to_list()
            ['MainThread']
        """
        from . import frames

        for process in self._processes:
            last = None
            for texts in self._blocks.texts(process):
                if texts is not last:
                    process.learn_texts(texts)
                last = texts
        return frames.track_table(self._processes)

    def patches(self) -> pl.DataFrame:
        """`process, rank, host, pid, role, framework, path, state, reason, detail, tier, version, calls`: what became
        of each target of `autopatch` in each process. No rows for a process in which nothing was patched. `version`: in
        words, where autopatch does not know it; `calls`: null where they were not counted for the target alone.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> len(mstxkit.open_run("runs/exp7").patches())
            0
        """
        from . import frames

        records = self._patch_records(patch_record.parse)
        return frames.patch_table([(process, target) for process, targets in records for target in targets])

    def trainer_settings(self) -> dict[str, list[str]]:
        """Numbers and switches of trainers that `autopatch` knows, by name; several values where processes differ.

        Empty where nobody knows. Texts are not kept, and no setting that is called like a secret.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> mstxkit.open_run("runs/exp7").trainer_settings()
            {}
        """
        values: dict[str, set[str]] = {}
        for _, settings in self._patch_records(patch_record.parse_settings):
            for name, value in settings.items():
                values.setdefault(name, set()).add(value)
        return {name: sorted(seen) for name, seen in values.items()}

    def escalations(self) -> pl.DataFrame:
        """`request, stage, rank, state, first_step, last_step, start_ns, end_ns, preset, folder, reason`.

        One row a request, stage and rank, oldest request first: how it stands by the newest word of the rank, the steps
        really recorded (the window, while none are), when recording began and ended (null: not), where the profiles
        lie, below the run. A rank that says nothing is queued, and expired when the request's time is over. *Cost*:
        reads a small file for each rank and each profile.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> len(mstxkit.open_run("runs/exp7").escalations())
            0
        """
        import polars as pl

        from . import frames
        from .tables import escalations

        rows = escalations.rows(self.path, self.id, self._processes, self.damage)
        return pl.DataFrame(rows, schema=frames.ESCALATION_SCHEMA)

    def profiles(self) -> pl.DataFrame:
        """`request, stage, step, rank, host, state, place, bytes, start_ns, end_ns, preset, folder, reason`.

        One row a session, light capture too (its request is ""). `place` says where its data are: `run`, below
        `folder`; `host`, on the own disk of `host`; `removed`, to make room; `none`, where there are none. Times are
        those of the host's own clock.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> len(mstxkit.open_run("runs/exp7").profiles())
            0
        """
        import polars as pl

        from . import frames
        from .tables import profiles

        return pl.DataFrame(profiles.rows(self.path, self.id, self.damage), schema=frames.PROFILE_SCHEMA)

    def verdicts(self) -> pl.DataFrame:
        """What was judged of the job, oldest first: `rank` and `stage` are the cause, never who waited for it.

        `time_ns, step, kind, stage, rank, role, since_step, impact_ratio, coverage_ratio, confidence, waits_for,
        evidence, next, request, recurrence_ratio, group, withdrawn, no_request`: each verdict as it was said last;
        `evidence` is JSON, `withdrawn` says why it holds no more (null: it does), `no_request` why it asked for no
        profile, or what came of none. No rows where nobody judged the job while it ran.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> mstxkit.open_run("runs/exp7").verdicts().columns[2:5]
            ['kind', 'stage', 'rank']
        """
        from .tables import verdicts

        return verdicts.table(self.path, self._chosen, self.damage)

    def incidents(self) -> pl.DataFrame:
        """Hangs, deaths, and what else was looked at closely while the job ran, oldest first.

        `incident, time_ns, kind, stage, range, rank, role, since_ns, waits_for, reports, page, reason`: `kind` is hang,
        killed, signal, exception or request; `rank`, `stage`, `range` the cause (null: nobody alone is), never who
        waited for it; `since_ns` when it was entered; `page` is readable text, relative to the run.

        Example:
            >>> import mstxkit
            >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"): pass
            >>> len(mstxkit.open_run("runs/exp7").incidents())
            0
        """
        from .tables import incidents

        return incidents.table(self.path, self.id, self._chosen, self.damage)
