"""`verdicts/job.json`: the job as who judges it sees it: each role's stages, who is late, which hosts are silent.

Beside `figures.json`, which goes to every host and is numbers alone. Read by `mstxkit top`; anybody with this user's
rights may have written it, so what is no number or text is left out, and everything is bounded.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Mapping, NamedTuple

from . import documents, layout, values
from .values import finite_number, list_of, small_number, step_number, table_of, whole_number

ROLES_AT_MOST, STAGES_AT_MOST, LATE_AT_MOST, SILENT_AT_MOST, NOTES_AT_MOST = 64, 64, 8, 16, 8
_NAME_AT_MOST, _NOTE_AT_MOST = 200, 400
# Of all roles together, so that the file can be read again whatever their names are.
_STAGES_IN_ALL, _LIMIT_BYTES = 2048, 8 << 20


class StageFigures(NamedTuple):
    """A stage of a role in the step that was judged last."""

    stage: str  # its canonical key
    # max_s, median_s: over the members; of a controller's own where there are none
    max_s: float
    median_s: float
    # Whose time is the longest; where they wait for each other, who came last: they wait for that one.
    slowest_rank: int | None = None
    # begin_ns, end_ns: the first member's begin, the last one's end; wall clock
    begin_ns: int = 0
    end_ns: int = 0
    members: int = 0  # how many were in it and worked: a controller only waits
    tokens_per_s: float | None = None  # of all members together; None where no tokens are known
    mfu_ratio: float | None = None  # share of the devices' peak; None where FLOPs are not known


class Latecomer(NamedTuple):
    """Who entered a stage later than the others: by how many seconds later than their median, in which stage."""

    rank: int | None
    host: str
    stage: str
    late_s: float


class RoleFigures(NamedTuple):
    """A role in the step that was judged last."""

    role: str
    step: int
    members: int = 0  # how many took part and worked
    wait_ratio: float = 0.0  # share of the step that a member waits for others, in the mean
    begin_ns: int = 0
    end_ns: int = 0
    stages: tuple[StageFigures, ...] = ()
    late: tuple[Latecomer, ...] = ()  # who came last where that was worst, the latest first
    judged_steps: int | None = None  # so many of its steps could lead to a verdict; None: who wrote this did not say


class JobState(NamedTuple):
    """The job."""

    roles: tuple[RoleFigures, ...] = ()  # in the order in which they came
    # hosts, ended: hosts that have handed anything over, and of those the ones that said goodbye
    hosts: int = 0
    ended: int = 0
    silences: int = 0
    # Hosts of which nothing comes any more although they have said no goodbye; the first few of `silences`.
    silent: tuple[str, ...] = ()
    # missed_rows, dropped_batches: what did not reach who judges: lost figures, never lost training
    missed_rows: int = 0
    dropped_batches: int = 0
    written_ns: int = 0  # wall clock of who judges
    is_final: bool = False  # was all judged that there was?
    notes: tuple[str, ...] = ()  # what there is to say of where figures go: the port, what is missing, what was dropped
    # How far the files of the hosts were read, `BatchFile.position` by their names.
    read: Mapping[str, tuple[int, int]] = {}
    # What makes the wall clock of CLOCK_MONOTONIC, ns, by boot id, of hosts whose own wall clock is wrong.
    clocks: Mapping[str, int] = {}

    @property
    def judged_steps(self) -> tuple[int | None, ...]:
        """The same of each role in which ranks are compared: there was more than one in its last step, or before."""
        return tuple(role.judged_steps for role in self.roles if role.members > 1 or role.judged_steps)

    def as_json(self, run_id: str) -> bytes:
        """Its file: of very many roles the first, each with fewer stages."""
        kept = self.roles[:ROLES_AT_MOST]
        each = min(STAGES_AT_MOST, _STAGES_IN_ALL // max(1, len(kept)))
        roles = [
            {**role._asdict(), "stages": [stage._asdict() for stage in role.stages[:each]],
             "late": [rank._asdict() for rank in role.late]}
            for role in kept
        ]  # fmt: skip
        return documents.encode_document(run_id, {**self._asdict(), "roles": roles})


def write_state(run: Path, run_id: str, state: JobState) -> None:
    """Replace the file. OSError: it cannot be written."""
    documents.replace_file(run / layout.VERDICTS / layout.JOB, state.as_json(run_id))


def show_life(run: Path, run_id: str) -> None:
    """Show that somebody judges who has nothing new to say yet: the file is touched. OSError: it cannot be written."""
    try:
        os.utime(run / layout.VERDICTS / layout.JOB, follow_symlinks=False)
    except FileNotFoundError:
        write_state(run, run_id, JobState(written_ns=time.time_ns()))


def read_state(run: Path, run_id: str) -> JobState | None:
    """What was said last; None where nothing was, or it cannot be used."""
    fields = documents.find_document(run / layout.VERDICTS / layout.JOB, run_id, _LIMIT_BYTES)
    return None if fields is None else _read_state(fields)


def _read_positions(value: Any) -> dict[str, tuple[int, int]]:
    wholes = {name: (*map(whole_number, list_of(at)), 0, 0) for name, at in table_of(value).items()}
    return {name: (which, at) for name, (which, at, *_) in wholes.items()}


def _read_number(value: Any) -> float | None:
    """From 0 on, finite."""
    number = finite_number(value)
    return number if number is not None and 0 <= number < 1e18 else None


def _read_amount(value: Any) -> float:
    return _read_number(value) or 0.0


_read_name = values.short_text(_NAME_AT_MOST)
_read_stage = values.record_with(StageFigures, {
    _read_name: "stage", _read_amount: "max_s median_s", _read_number: "tokens_per_s mfu_ratio",
    small_number: "slowest_rank", values.count_of: "members", whole_number: "begin_ns end_ns",
})  # fmt: skip
_read_late = values.record_with(Latecomer, {_read_name: "host stage", _read_amount: "late_s", small_number: "rank"})
_read_role = values.record_with(RoleFigures, {
    _read_name: "role", values.count_of: "members", small_number: "judged_steps", whole_number: "begin_ns end_ns",
    values.list_with(_read_stage, STAGES_AT_MOST): "stages", values.list_with(_read_late, LATE_AT_MOST): "late",
}, step=lambda step: step_number(step) or 0, wait_ratio=lambda ratio: min(1.0, _read_amount(ratio)))  # fmt: skip
_read_state = values.record_with(JobState, {
    whole_number: "missed_rows dropped_batches written_ns", values.count_of: "hosts ended silences",
    values.list_with(_read_role, ROLES_AT_MOST): "roles", values.list_with(_read_name, SILENT_AT_MOST): "silent",
    values.list_with(values.short_text(_NOTE_AT_MOST), NOTES_AT_MOST): "notes", _read_positions: "read",
    values.table_with(whole_number): "clocks", values.is_true: "is_final",
})  # fmt: skip
