"""Databases that MindStudio Insight opens and msprof-analyze reads: one for each rank, with ranges and steps.

`msmonitor`, the default, is the flat layout of msMonitor: both tools take it with nothing beside it. `torch-npu` is the
layout of torch_npu's own profiles. With `into` the ranges of one rank go into a copy of such a profile, on its time.

The four stages that Insight's RL tab has a name for are called by it (`_rl_names.py`). What is open is a mark, `open:
<name>`, where it began: these tools cannot read a range without an end. `ranks.csv` says which file is whose.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl

from ...errors import MstxkitError
from ...store.values import group_by
from ..run import Run
from . import FOLDER, Exporter, _rank_files
from ._ascend_file import AscendFile
from ._ascend_merge import merge_ranges
from ._rank_files import RANKS, RankFile, how_to_import, number_of, profile_folder, write_beside
from ._rank_rows import RankRowReader, RankRows, StepTimes
from .chrome import trace_pids

MSMONITOR, TORCH_NPU = "msmonitor", "torch-npu"
# From here on mstx_sum takes longer than ten seconds of CPU a rank.
_MANY = 16_000


def write_databases(run: Run, folder: Path, layout: str = MSMONITOR, into: str | None = None) -> int:
    """Write `run` into an empty folder; the number of ranges and marks.

    Args:
        layout: MSMONITOR or TORCH_NPU.
        into: A database of torch_npu's, to a copy of which the ranges of its rank are added.

    *Cost*: about one microsecond a range. As many files are open at a time as a rank has roles.

    Raises:
        MstxkitError: no such layout; a profile that cannot be read, or that nothing of the run fits into.
    """
    if layout not in (MSMONITOR, TORCH_NPU):
        raise MstxkitError(f"no layout {layout!r}; choose {MSMONITOR} or {TORCH_NPU}")
    if into is not None:
        return merge_ranges(run, folder, Path(into))
    try:
        with closing(_Folder(run, folder, layout)) as writer:
            for rows in writer.reader.rows():
                writer.add(rows)
            return writer.finish()
    except sqlite3.Error as exc:
        raise OSError(f"{exc}") from exc


class _Folder:
    """The files of all ranks; those of which all processes are written are closed."""

    def __init__(self, run: Run, folder: Path, layout: str) -> None:
        self._run, self._folder, self._layout = run, folder, layout
        self._processes = run.processes()
        self._files = _rank_files.of_run(self._processes)
        self._file_of = {process: file for file in self._files for process in file.processes}
        self._open: dict[int, tuple[AscendFile, StepTimes]] = {}
        self._counts: dict[int, int] = {}
        self._first_ns = 0
        self._pids, self._attempts = trace_pids(self._processes), self._processes["attempt"].to_list()
        self.reader = RankRowReader(run)
        self._opened = group_by(self.reader.open_marks(), lambda rows: rows.process)

    def add(self, rows: RankRows) -> None:
        file = self._file_of[rows.process]
        for base, steps in list(self._open.values()):
            if max(steps.file.processes) < rows.process:
                self._close_file(base, steps)
        base, steps = self._of(file)
        steps.see(rows)
        base.put(rows, self.reader.texts, self._pids[rows.process])

    def _of(self, file: RankFile) -> tuple[AscendFile, StepTimes]:
        if file.number not in self._open:
            if self._layout == MSMONITOR:
                place = self._folder / f"msmonitor_{file.pid}_{file.stamp}_{file.number}.db"
            else:
                place = profile_folder(self._folder, file) / f"ascend_pytorch_profiler{number_of(file)}.db"
            self._open[file.number] = AscendFile(place), StepTimes(file, self._attempts)
        return self._open[file.number]

    def _close_file(self, base: AscendFile, steps: StepTimes) -> None:
        file = steps.file
        for process in file.processes:
            for rows in self._opened.pop(process, ()):
                steps.see(rows)
                base.put(rows, self.reader.texts, self._pids[process])
        del self._open[file.number]
        self._counts[file.number] = base.count
        # A file without events is of the others' time: Insight's zero is the earliest that any of them says.
        if not base.count:
            base.first_ns = base.last_ns = self._first_ns or file.start_ns
        self._first_ns = min(self._first_ns or base.first_ns, base.first_ns)
        about = {"mstxkit_run": self._run.id, "mstxkit_role": file.role or "", "mstxkit_rank": str(file.rank)}
        base.describe(file, steps.windows(), about)
        base.finish()

    def finish(self) -> int:
        for base, steps in list(self._open.values()):
            self._close_file(base, steps)
        rest = [file for file in self._files if file.number not in self._counts]
        for file in sorted(rest, key=lambda file: self._opened.keys().isdisjoint(file.processes)):
            self._close_file(*self._of(file))
        write_beside(self._folder, self._files, self._processes, self._counts, self.reader.shown)
        return sum(self._counts.values())

    def close(self) -> None:
        for base, _ in self._open.values():
            base.close()


def advise_opening(target: Path) -> list[str]:
    """How to open a folder, and when it is too much for msprof-analyze."""
    file = target / RANKS
    most = int(max(pl.read_csv(file, columns=["ranges"])["ranges"], default=0)) if file.exists() else 0
    too_many = f"msprof-analyze: a rank has {most:,} ranges, and mstx_sum takes their square: export some --steps"
    return [*how_to_import(target), *([too_many] if most > _MANY else [])]


_OPTIONS = {"layout": f"{MSMONITOR} or {TORCH_NPU}", "into": "a profile of torch_npu's to add one rank's ranges to"}
EXPORTER = Exporter("_ascend", write_databases, form=FOLDER, advice=advise_opening, options=_OPTIONS)
