"""`now/<host>-<digest>.json`: in which step and stage the processes of a host are, every few seconds.

One small file a host, replaced as a whole. What it says is as old as it is: every reader shows its age.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any, Iterable, Mapping, NamedTuple

from ..host import folders, identity, parts
from . import documents, layout
from .documents import Unusable
from .report import Acknowledgement
from .values import list_of, small_number, step_number, table_of, text_of, whole_number

PROCESSES_AT_MOST = 1024
_NS = 10**9
# A clock may be set by so much without a word: hosts of a cluster agree better.
_CLOCKS_AGREE_S = 1.0


class Age(NamedTuple):
    """How long ago something was written."""

    # By the writer's clock and the reader's: where these are two, and differ, it is as wrong, and it may be below 0.
    seconds: float
    is_exact: bool  # was one clock enough, as both are on one host?

    @property
    def words(self) -> str:
        """`3 s ago`; `~3 s ago` by the clocks of two hosts; that they differ, where nothing else explains it."""
        if self.seconds < -_CLOCKS_AGREE_S and not self.is_exact:
            return f"its clock is {write_span(-self.seconds)} ahead"
        return f"{'' if self.is_exact else '~'}{write_span(max(0.0, self.seconds))} ago"


class Whereabouts(NamedTuple):
    """Where one process was, and when that was seen."""

    # host, pid, rank, role, part: of the process; None where that is not known
    host: str
    pid: int
    rank: int | None
    role: str
    part: str
    step: int | None  # its newest; None before its first
    stage: str | None  # the innermost that is open; None between two of them
    in_stage_s: float | None  # how long it had been in it
    written_ns: int  # wall clock of its host
    age: Age  # at the moment of reading
    under: str = ""  # what it works under; docs of `host/parts.py`

    @property
    def who(self) -> tuple[int | None, str, str]:
        """Rank, role and part: those of a rank that was started again are the same, whatever its process."""
        return self.rank, self.role, self.part

    @property
    def called(self) -> str:
        """`rank 3`, or what a process without one is called."""
        return f"rank {self.rank}" if self.rank is not None else parts.name_process(self.part, self.pid)

    @property
    def is_at_work(self) -> bool:
        """Is it `is_of_a_rank`, or a process of a job that has no ranks, that is in steps or stages?"""
        is_alone = self.rank is None and self.under not in (parts.POOL, parts.DATALOADER, parts.RAY_DRIVER)
        return self.is_of_a_rank or (is_alone and (self.step is not None or bool(self.stage)))

    @property
    def is_of_a_rank(self) -> bool:
        """Is it a rank's own process, an actor of Ray's too, of which more is known than that?"""
        is_own = self.rank is not None and self.under not in (*parts.BESIDE, parts.RAY_DRIVER)
        return is_own and (self.step is not None or bool(self.stage))


def write_whereabouts(run: Path, run_id: str, folder: Path, processes: Iterable[Mapping[str, Any]]) -> None:
    """Say where the processes are that have their live files in `folder` of this host.
    Raises OSError, CaptureError: it cannot be written; FileNotFoundError where there is no such run.
    """
    about = {
        "host": identity.name_host(), "boot": identity.boot_id(), "timens": identity.read_namespace("time"),
        "keeper": os.getpid(), "written_ns": time.time_ns(), "mono_ns": time.monotonic_ns(),
        "processes": list(processes)[:PROCESSES_AT_MOST],
    }  # fmt: skip
    os.stat(run)  # what somebody has removed is not made anew here
    folders.make_folder(run / layout.NOW)
    name = layout.name_of_host(folder, layout.NOW_SUFFIX)
    documents.replace_file(run / layout.NOW / name, documents.encode_document(run_id, about))


def read_seen(run: Path, run_id: str, unusable: list[Unusable] | None = None) -> list[Whereabouts]:
    """Where the processes of a run were last, by rank and host; files that cannot be used are added to `unusable`."""
    each = documents.each_usable(files_in(run), lambda file: in_file(file, run_id), unusable)
    places = [where for of_host in each for where in of_host]
    return sorted(places, key=lambda where: (where.rank is None, where.rank or 0, where.host, where.pid))


def files_in(run: Path) -> list[Path]:
    """The file of each host."""
    names = documents.names_in(run / layout.NOW, layout.NOW_SUFFIX)
    return [run / layout.NOW / name for name in names if not name.startswith(".")]


def in_file(file: Path, run_id: str) -> list[Whereabouts]:
    """Where the processes of one host were; none where there is no file. Unusable: it is no such file."""
    fields = documents.read_document(file, run_id)
    if fields is None:
        return []
    host, written_ns = text_of(fields.get("host")), whole_number(fields.get("written_ns"))
    written, here = find_age(host, written_ns), (identity.boot_id(), identity.read_namespace("time"))
    if here[0] and (fields.get("boot"), fields.get("timens")) == here:  # CLOCK_MONOTONIC tells, which nobody sets
        written = Age((time.monotonic_ns() - whole_number(fields.get("mono_ns"))) / _NS, True)
    processes = map(table_of, list_of(fields.get("processes"))[:PROCESSES_AT_MOST])
    return [
        Whereabouts(
            text_of(process.get("host")) or host, whole_number(process.get("pid")), small_number(process.get("rank")),
            text_of(process.get("role")), text_of(process.get("part")), step_number(process.get("step")),
            text_of(process.get("stage")) or None, _read_seconds(process.get("in_stage_ns")), written_ns, written,
            text_of(process.get("under")),
        )
        for process in processes
    ]  # fmt: skip


def _read_seconds(value: Any) -> float | None:
    return value / _NS if type(value) is int and 0 <= value < 1 << 63 else None


def of_speaker(
    ack: Acknowledgement, step: int | None, by_process: Mapping[tuple[str, int], Whereabouts]
) -> Whereabouts:
    """Where a process is that has said its step itself: by that, or by what its keeper has seen since."""
    where = by_process.get((ack.host, ack.pid))
    if where is None:
        about = (step, None, None, ack.written_ns, find_age(ack.host, ack.written_ns))
        return Whereabouts(ack.host, ack.pid, ack.rank, ack.role, "", *about)
    if where.written_ns >= ack.written_ns:  # both by the clock of that host
        return where
    return where._replace(step=step, written_ns=ack.written_ns, age=find_age(ack.host, ack.written_ns))


def by_process(seen: Iterable[Whereabouts]) -> dict[tuple[str, int], Whereabouts]:
    """The newest of each process, by host and pid."""
    return {(where.host, where.pid): where for where in sorted(seen, key=lambda where: where.written_ns)}


def find_age(host: str, written_ns: int) -> Age:
    """Of what a process of this host wrote by its wall clock."""
    return Age((time.time_ns() - written_ns) / _NS, host == identity.name_host())


def write_span(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min`, `5 h`, `2 d`: for ages, which nobody wants more exactly."""
    if seconds < 99.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    unit, size = next((each for each in (("min", 60), ("h", 3600)) if seconds < 99.5 * each[1]), ("d", 86400))
    return f"{math.floor(seconds / size)} {unit}"
