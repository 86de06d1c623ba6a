"""Who came last into collectives by device ranges: of the steps of a run that were profiled, and parsed since.

A profile with ranges of the domain `communication`, or with communication operations, tells of one window of a stage:
light capture, a light step that the judge asked for, or any request. `judging/device_lateness.py` reads each rank's
database. Clocks do not matter. Bound: the shortest time that a member was in the collective, in which all were and data
moved; it is taken that no two of them leave it farther apart than that.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ...store import layout
from ...store.documents import names_in
from ...store.session_file import RECORDED, RecordedSession, read_sessions
from ...store.values import text_of, whole_number

# The newest of them; each is read from one database a rank.
WINDOWS_AT_MOST = 64
_NPU = ("torch_npu", "mindspore")


class ProfiledWindow(NamedTuple):
    """What was profiled at once: some ranks in one stage of one step, None: of several; `request`: "" of light capture.
    `databases`: rank to its parsed database; None: not parsed yet, or there is none.
    """

    request: str
    stage: str
    step: int | None
    databases: dict[int, Path | None]
    is_of_npu: bool

    @property
    def is_parsed(self) -> bool:
        """Are there two ranks at least that can be compared?"""
        return sum(file is not None for file in self.databases.values()) > 1


def find_windows(run: str | os.PathLike[str], run_id: str) -> list[ProfiledWindow]:
    """The newest windows that two ranks or more have recorded, the oldest first."""
    by_window: dict[tuple[str, str, tuple[int, ...]], dict[int, RecordedSession]] = {}
    for session in read_sessions(run, run_id):
        request, stage, rank = session.key
        if rank is not None and session.document.get("state") == RECORDED:
            members = by_window.setdefault((request, stage, tuple(session.steps)), {})
            members[rank] = max(session, members.get(rank, session), key=_began_ns)
    several = [(key, members) for key, members in by_window.items() if len(members) > 1]
    several.sort(key=lambda window: min(map(_began_ns, window[1].values())))
    made = []
    for (request, stage, steps), members in several[-WINDOWS_AT_MOST:]:
        databases = {rank: _find_database(Path(run), session) for rank, session in sorted(members.items())}
        is_of_npu = any(text_of(session.document.get("backend")) in _NPU for session in members.values())
        made.append(ProfiledWindow(request, stage, steps[0] if len(steps) == 1 else None, databases, is_of_npu))
    return made


def _began_ns(session: RecordedSession) -> int:
    return whole_number(session.document.get("start_ns"))


def _find_database(run: Path, session: RecordedSession) -> Path | None:
    """The database that a parse has left of it, if it lies inside the run."""
    below = tuple(session.folder.split(os.sep)[1:])
    output, request = (text_of(session.document.get(key)) for key in ("output", "request"))
    parts = layout.data_parts(below, output, request) if output else None
    if parts is None:
        return None
    from ...parsing import kinds

    kind, folder = kinds.kind_of(parts[-1]), run / layout.PROFILES
    for part in (*parts, kinds.OUTPUT):
        folder /= part
        if folder.is_symlink():
            return None
    names = [name for name in names_in(folder, ".db") if kind is not None and kind.database.fullmatch(name)]
    files = [folder / name for name in names if (folder / name).is_file() and not (folder / name).is_symlink()]
    return files[0] if len(files) == 1 else None
