"""The folder of a session in the run, and `session.json` in it: who recorded what, when, why, and what went wrong.

    <run>/profiles/<stage>/step<N>/rank<R>/<start ns>-<pid>/session.json

What the profiler wrote lies beside it while it records. At the end of a session of a request it goes into the folder of
that request, where tools find all ranks (`layout.request_parts`, docs/decisions/0018-one-folder-a-request.md). Data on
a host's own disk stay there until they are fetched: `stored` says where (`store/fetching.py`).

Written when a session begins, in state "recording", and replaced when it ends, in state "recorded" or "failed". What is
left of a killed process says "recording" for ever: its pid, and the time of its host's boot, tell.
docs/guide/sessions.md has the fields.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Sequence

from ..errors import MstxkitError
from ..host import folders, identity
from . import documents, layout, local_place
from .documents import FORMAT, Unusable
from .layout import SESSION_FILE
from .values import list_of, small_number, step_number, text_of

RECORDING, RECORDED, FAILED = "recording", "recorded", "failed"
# Beyond these somebody else wrote them; the rest is left out, and listed.
SESSIONS_AT_MOST = 200_000
# Blanks at the end of the first one: so that on a full disk its end can be told in the blocks that it has.
_ROOM_BYTES = 16384


class Order(NamedTuple):
    """One session that is wanted of this process."""

    run: Path  # the run folder, resolved
    run_id: str
    rank: int
    world_size: int
    role: str  # of this process; empty where none is known
    stage: str  # canonical key of the stage that it covers; "light" for light capture
    step: int | None  # the rank's; None before its first
    preset: Any  # a `profiling.declare.Preset`
    request: str = ""  # its id; empty for light capture
    reason: str = ""  # in the asker's words
    seconds: float | None = None  # limit, when whoever gave the order ends the session; None: no limit
    bytes: int | None = None  # the same of raw data; CANN is given a limit of its own behind it
    is_only_window: bool = True  # is its request for one window alone?
    local: Path | None = None  # the folder given for data on each host's own disk; None: the run


class SessionStart(NamedTuple):
    """What `session.json` says of a session from its beginning on."""

    order: Order
    # preset, options, notes: its name (None: the options are the request's own); by the profiler's own names what it
    # became, and what it drops or changes
    preset: str | None
    options: dict[str, Any]
    notes: Sequence[str]
    bytes_enforceable: bool  # does the profiler write while it records? Else no limit of bytes can hold
    # backend, backend_version, version: what records; mstxkit's
    backend: str
    backend_version: str
    version: str
    distributed: dict[str, Any]  # `parallel.distributed_args`


class SessionOutcome(NamedTuple):
    """What became of a session. Nothing of it is raised: what went wrong is in `problems`."""

    folder: Path | None  # what the profiler wrote; None if it wrote nothing
    steps: tuple[int, ...]  # training steps that were really recorded, as they were told to `ProfilerSession.stop`
    start_ns: int  # when recording began, Unix time; 0 if it never did
    end_ns: int  # when it ended, before the profiler began to write
    bytes: int  # raw data on disk
    problems: tuple[str, ...]  # what went wrong, a sentence each; empty if the data can be relied on
    is_whole: bool = False  # is there an output that holds what it must? Problems may remain all the same
    notes: tuple[str, ...] = ()  # what is good to know, and no problem


class SessionFile:
    """A session's folder, made anew in a run, and the document in it. The profiler is to write into `data`: that
    folder, or one on this host's own disk. Raises OSError, CaptureError: the folder or the file cannot be made.
    """

    def __init__(self, run: Path, start: SessionStart) -> None:
        self.folder = self.data = _make_folder(run, start)
        self.document = _describe_begin(start)
        self._run = run
        if start.order.local is not None:
            below = self.folder.relative_to(run / layout.PROFILES).parts
            self.data = local_place.make_session_folder(start.order.local, start.order.run_id, below)
            self.document["stored"] = {"host": identity.name_host(), "folder": str(self.data)}
        self.is_settled = False
        text = as_text(self.document)
        documents.replace_file(self.folder / SESSION_FILE, text + b" " * (_ROOM_BYTES - len(text)))

    def end(self, outcome: SessionOutcome, why: str, problems: Sequence[str] = ()) -> str | None:
        """Replace the document; why that could not be done, or None."""
        self.document.update(_describe_end(self.document, outcome, why))
        self.document["problems"] += problems
        try:
            # Put whole data of a request into its folder; the document says where they are from then on.
            is_for_tools = outcome.is_whole and self.document["request"] and self.data == self.folder
            if outcome.folder is not None and is_for_tools:
                self.document["output"] = into_request(self._run, self.folder, self.document, outcome.folder)
        except (OSError, MstxkitError) as exc:
            self.document["notes"].append(f"its data stay beside this file: {exc}")
        return self._replace_document()

    def fail(self, why: str) -> str | None:
        """Say that nothing was recorded."""
        self.document.update(state=FAILED, end_ns=time.time_ns(), problems=[why], ended_because=why)
        return self._replace_document()

    def _replace_document(self) -> str | None:
        text, problem = as_text(self.document), None
        try:
            documents.replace_file(self.folder / SESSION_FILE, text)
        except OSError as exc:
            # In the place that it has: a reader may see it half written, which beats one that says it still records.
            flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            with suppress(OSError):  # it was said that the file is not what it should be
                with documents.close_after(os.open(self.folder / SESSION_FILE, flags)) as descriptor:
                    os.pwrite(descriptor, text + b" " * (_ROOM_BYTES - len(text)), 0)
            problem = f"{SESSION_FILE} could not be replaced as a whole: {exc}"
        self.is_settled = True
        return problem


def as_text(document: dict[str, Any]) -> bytes:
    """The content of a session's file."""
    return json.dumps(document, indent=1, default=str).encode("utf-8", "backslashreplace")


def _make_folder(run: Path, start: SessionStart) -> Path:
    """The new folder. Each part of the way is a folder of this user's own: no link leads out of the run."""
    if not run.is_dir():
        raise FileNotFoundError(f"the run folder {run} is not there")
    folder = folders.make_below(run, layout.session_parts(start.order.stage, start.order.step, start.order.rank))
    while True:
        made = folder / f"{time.time_ns()}-{os.getpid()}"
        try:
            made.mkdir(folders.FOLDER_MODE)
            return made
        except FileExistsError:
            continue


def into_request(run: Path, folder: Path, document: dict[str, Any], output: Path) -> str:
    """Move what a profiler wrote into the folder of its request; the way there from the session's folder.
    Raises OSError, CaptureError: it stays where it is.
    """
    place = place_in_request(run, folder, document)
    if os.path.lexists(place / output.name):
        raise FileExistsError(f"{place / output.name} is there already")
    os.rename(output, place / output.name)
    return os.path.relpath(place / output.name, folder)


def place_in_request(run: Path, folder: Path, document: dict[str, Any]) -> Path:
    """The folder of its request for a session's data, made or checked. Raises: OSError, CaptureError."""
    nth = sum(name <= folder.name for name in os.listdir(folder.parent))
    request, stage = (text_of(document.get(key)) for key in ("request", "stage"))
    step, is_only = step_number(document.get("step")), document.get("is_only_window") is not False
    return folders.make_below(run, layout.request_parts(request, stage, step, nth, is_only))


def _describe_begin(start: SessionStart) -> dict[str, Any]:
    order, notes = start.order, list(start.notes)
    if order.bytes is not None and not start.bytes_enforceable:
        why = f"{start.backend} keeps data in memory until the stop"
        notes.append(f"the limit of {order.bytes} bytes cannot be enforced: {why}")
    return {
        "format": FORMAT, "run": order.run_id, **identity.of_life(),
        "rank": order.rank, "world_size": order.world_size, "role": order.role,
        "stage": order.stage, "step": order.step, "steps": [],
        "request": order.request, "preset": start.preset, "options": start.options, "reason": order.reason,
        "state": RECORDING, "start_ns": time.time_ns(), "end_ns": None, "start_cost_ns": None, "stop_cost_ns": None,
        "bytes": 0, "output": None, "problems": [], "notes": notes,
        "limits": {"seconds": order.seconds, "bytes": order.bytes, "bytes_enforceable": start.bytes_enforceable},
        "overshoot": {"seconds": None, "bytes": None},
        "backend": start.backend, "backend_version": start.backend_version, "mstxkit": start.version,
        "ended_because": None, "distributed_args": start.distributed,
        "is_only_window": order.is_only_window, "stored": None,
    }  # fmt: skip


def _describe_end(document: dict[str, Any], outcome: SessionOutcome, why: str) -> dict[str, Any]:
    limits, lasted_s = document["limits"], max(0, outcome.end_ns - outcome.start_ns) / 1e9
    too_long_s = None if limits["seconds"] is None else round(max(0.0, lasted_s - limits["seconds"]), 6)
    too_many_bytes = None if limits["bytes"] is None else max(0, outcome.bytes - limits["bytes"])
    return {
        "steps": list(outcome.steps), "state": RECORDED if outcome.is_whole else FAILED,
        "start_ns": outcome.start_ns or document["start_ns"], "end_ns": outcome.end_ns or time.time_ns(),
        "bytes": outcome.bytes,
        "output": None if outcome.folder is None else outcome.folder.name,
        "problems": list(outcome.problems), "notes": [*document["notes"], *outcome.notes],
        "overshoot": {"seconds": too_long_s, "bytes": too_many_bytes}, "ended_because": why,
    }  # fmt: skip


class RecordedSession(NamedTuple):
    """One profile: where it lies, relative to the run, and what its session.json says."""

    folder: str
    document: dict[str, Any]

    @property
    def key(self) -> tuple[str, str, int | None]:
        """Request ("" for light capture), stage and rank."""
        request, stage = text_of(self.document.get("request")), text_of(self.document.get("stage"))
        return request, stage, small_number(self.document.get("rank"))

    @property
    def place(self) -> str:
        """The folder with its data, relative to the run: the request's; its own where they lie there, or nowhere."""
        below = tuple(self.folder.split(os.sep)[1:])
        output, request = (text_of(self.document.get(key)) for key in ("output", "request"))
        parts = layout.data_parts(below, output, request)
        return self.folder if parts is None else os.path.join(layout.PROFILES, *parts[:-1])

    @property
    def steps(self) -> list[int]:
        """Those that it recorded; while it records, the one in which it began."""
        steps = [step for step in list_of(self.document.get("steps")) if step_number(step) is not None]
        began = step_number(self.document.get("step"))
        return steps or ([began] if began is not None else [])


def read_sessions(
    run: str | os.PathLike[str], run_id: str, unusable: list[Unusable] | None = None
) -> Iterator[RecordedSession]:
    """Every profile of a run, light ones too, by stage, step, rank and start; what cannot be read is added to
    `unusable`. `run_id`: "" where it is unknown: then none is of another run.
    """
    top = os.path.join(run, layout.PROFILES)
    places = _list_folders(top, layout.SESSION_DEPTH)
    each = ((place, Path(place, SESSION_FILE)) for place in itertools.islice(places, SESSIONS_AT_MOST))
    reading = documents.each_usable(each, lambda at: (at[0], documents.read_document(at[1], run_id)), unusable)
    for place, document in reading:
        if document is not None:
            yield RecordedSession(text_of(os.path.relpath(place, run)), document)
    if unusable is not None and next(places, None) is not None:
        unusable.append(Unusable(top, f"more than {SESSIONS_AT_MOST} profiles: the rest is left out"))


def _list_folders(path: str, depth: int) -> Iterator[str]:
    """Those so many levels below; what is no folder, or a link to one, has none below it."""
    if depth == 0:
        yield path
        return
    names = (name for name in documents.names_in(path) if not name.endswith(layout.RAW_SUFFIXES))
    for name in sorted(names, key=_in_order):
        yield from _list_folders(os.path.join(path, name), depth - 1)


def _in_order(name: str) -> tuple[str, int, str]:
    """step9 before step10."""
    digits = name[len(name.rstrip("0123456789")) :]
    return (name[: len(name) - len(digits)], int(digits[:18] or 0), name)
