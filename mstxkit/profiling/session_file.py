"""The folder of a session in the run, and `session.json` in it: who recorded what, when, why, and what went wrong.

    <run>/profiles/<stage>/step<N>/rank<R>/<start ns>-<pid>/session.json, and what the profiler wrote

Written when a session begins, in state "recording", and replaced when it ends, in state "recorded" or "failed". What is
left of a killed process says "recording" for ever: its pid, and the time of its host's boot, tell. docs/sessions.md has
the fields.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from pathlib import Path
from typing import Any, Sequence

from .. import identity, places
from .declare import Backend, Order, Outcome

FOLDER, FILE, FORMAT = "profiles", "session.json", 1
RECORDING, RECORDED, FAILED = "recording", "recorded", "failed"
# Blanks at the end of the first one: so that on a full disk its end can be told in the blocks that it has.
_ROOM_BYTES = 16384
_NAME, _NAME_AT_MOST = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]{0,79}"), 60


class SessionFile:
    """A session's folder, made anew, and the document in it.

    Args:
        order: What is to be recorded.
        backend: What with.
        distributed: `parallel.distributed_args`.
        version: mstxkit's.

    Raises:
        OSError, CaptureError: the folder or the file cannot be made.
    """

    def __init__(self, order: Order, backend: Backend, distributed: dict[str, Any], version: str) -> None:
        self.folder = _made(order)
        self.document = _begun(order, backend, distributed, version)
        self.is_settled = False
        text = _text(self.document)
        places.replace_file(self.folder / FILE, text + b" " * (_ROOM_BYTES - len(text)))

    def end(self, outcome: Outcome, why: str, problems: Sequence[str] = ()) -> str | None:
        """Replace the document; why that could not be done, or None."""
        self.document.update(_ended(self.document, outcome, why, self.folder))
        self.document["problems"] += problems
        return self._replaced()

    def fail(self, why: str) -> str | None:
        """Say that nothing was recorded."""
        self.document.update(state=FAILED, end_ns=time.time_ns(), problems=[why], ended_because=why)
        return self._replaced()

    def _replaced(self) -> str | None:
        text = _text(self.document)
        try:
            places.replace_file(self.folder / FILE, text)
        except OSError as exc:
            self._overwrite(text)
            self.is_settled = True
            return f"{FILE} could not be replaced as a whole: {exc}"
        self.is_settled = True
        return None

    def _overwrite(self, text: bytes) -> None:
        """In the place that it has: a reader may see it half written, which beats one that says it still records."""
        try:
            descriptor = os.open(self.folder / FILE, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.pwrite(descriptor, text + b" " * (_ROOM_BYTES - len(text)), 0)
            finally:
                os.close(descriptor)
        except OSError:
            pass  # it was said that the file is not what it should be


def _text(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=1, default=str).encode("utf-8", "backslashreplace")


def _made(order: Order) -> Path:
    """The new folder. Each part of the way is a folder of this user's own: no link leads out of the run."""
    if not order.run.is_dir():
        raise FileNotFoundError(f"the run folder {order.run} is not there")
    step = "unknown" if order.step is None else f"{order.step:d}"
    folder = order.run
    for part in (FOLDER, file_name(order.stage), f"step{'-' * (order.step is None)}{step}", f"rank{order.rank:d}"):
        folder /= part
        places.make_folder(folder)
    while True:
        made = folder / f"{time.time_ns()}-{os.getpid()}"
        try:
            made.mkdir(places.FOLDER_MODE)
            return made
        except FileExistsError:
            continue


def file_name(stage: str) -> str:
    """A stage's key as the name of a folder: itself where it may be one, else what is left of it with a digest."""
    if _NAME.fullmatch(stage):
        return stage
    digest = hashlib.blake2b(stage.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{re.sub('[^0-9A-Za-z_-]', '_', stage)[:_NAME_AT_MOST]}-{digest}"


def _begun(order: Order, backend: Backend, distributed: dict[str, Any], version: str) -> dict[str, Any]:
    options, notes = backend.described(order.preset)
    return {
        "format": FORMAT,
        "run": order.run_id,
        **identity.of_life(),
        "rank": order.rank,
        "world_size": order.world_size,
        "role": order.role,
        "stage": order.stage,
        "step": order.step,
        "steps": [],
        "request": order.request,
        "preset": None if order.preset.name == "custom" else order.preset.name,
        "options": options,
        "reason": order.reason,
        "state": RECORDING,
        "start_ns": time.time_ns(),
        "end_ns": None,
        "start_cost_ns": None,
        "stop_cost_ns": None,
        "bytes": 0,
        "output": None,
        "problems": [],
        "notes": [*notes, *_unlimited(order, backend)],
        "limits": {"seconds": order.seconds, "bytes": order.bytes, "bytes_enforceable": backend.on_disk},
        "overshoot": {"seconds": None, "bytes": None},
        "backend": backend.name,
        "backend_version": backend.version(),
        "mstxkit": version,
        "ended_because": None,
        "distributed_args": distributed,
    }


def _unlimited(order: Order, backend: Backend) -> list[str]:
    if order.bytes is None or backend.on_disk:
        return []
    return [f"the limit of {order.bytes} bytes cannot be enforced: {backend.name} keeps data in memory until the stop"]


def _ended(document: dict[str, Any], outcome: Outcome, why: str, folder: Path) -> dict[str, Any]:
    limits, lasted_s = document["limits"], max(0, outcome.end_ns - outcome.start_ns) / 1e9
    return {
        "steps": list(outcome.steps),
        "state": RECORDED if outcome.is_whole else FAILED,
        "start_ns": outcome.start_ns or document["start_ns"],
        "end_ns": outcome.end_ns or time.time_ns(),
        "bytes": outcome.bytes,
        "output": None if outcome.folder is None else os.path.relpath(outcome.folder, folder),
        "problems": list(outcome.problems),
        "notes": [*document["notes"], *outcome.notes],
        "overshoot": {
            "seconds": None if limits["seconds"] is None else round(max(0.0, lasted_s - limits["seconds"]), 6),
            "bytes": None if limits["bytes"] is None else max(0, outcome.bytes - limits["bytes"]),
        },
        "ended_because": why,
    }
