"""The profiles of a run: sessions with their `session.json`, and raw folders that killed processes left without one.

Nothing below the run is trusted: no link is followed, no name leads out of the folder it is found in, sizes are capped.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any, Iterator, NamedTuple

from .. import identity, places
from . import kinds

PROFILES, SESSION = "profiles", "session.json"
READY, RECORDING, NOTHING = "ready", "recording", "nothing to do"
_DEEPEST = 8
_STEP, _RANK = re.compile(r"step(\d{1,18})"), re.compile(r"rank(\d{1,9})")
_TORCH = "traces of torch.profiler need no parsing"
_ON_CPU = "MindSpore parses what it recorded on a CPU only in the process that recorded it"


class Profile(NamedTuple):
    """One profile of a run.

    Attributes:
        path: Its folder, relative to the run: the raw one where there is one, else that of its session.
        kind: What parses it, a name of `kinds.KINDS`; "" where nothing does.
        state: ready, recording (left out), or nothing to do.
        reason: Why it is not ready, or what is to be known of it.
        record_file: Where the result of its parse is kept.
        stage, step, rank, request: Of its session, else as its path says; None where that is unknown.
        bytes: Of the raw data, as its session says.
    """

    path: str
    kind: str
    state: str
    reason: str
    record_file: Path
    stage: str
    step: int | None
    rank: int | None
    request: str
    bytes: int | None


def found(run: Path, unfinished: bool = False) -> list[Profile]:
    """All profiles of a run, by stage, step and rank.

    Args:
        run: The run's folder.
        unfinished: Take also what a process on another host may still be recording: nobody here can ask it.
    """
    top = run / PROFILES
    if not top.is_dir() or top.is_symlink():
        return []
    alive = _Living(run, unfinished)
    every = [one for folder, raws, files in _folders(top) for one in _of(run, folder, raws, files, alive)]
    return sorted(every, key=lambda one: (one.stage, one.step or 0, one.rank or 0, one.path))


def _folders(top: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Each folder that holds a session or raw profiles, with the names of these and of its files."""
    for place, inner, files in os.walk(top):
        folder = Path(place)
        raws = [name for name in inner if kinds.kind_of(name) and not (folder / name).is_symlink()]
        is_deep = len(folder.relative_to(top).parts) >= _DEEPEST
        inner[:] = [] if is_deep else [name for name in inner if name not in raws]
        if raws or SESSION in files:
            yield folder, sorted(raws), files


def _of(run: Path, folder: Path, raws: list[str], files: list[str], alive: _Living) -> Iterator[Profile]:
    session = places.read_json(folder / SESSION) if SESSION in files else None
    unreadable = SESSION in files and session is None
    for name in raws:
        belongs = session is not None and (session.get("output") == name or len(raws) == 1)
        own = session if belongs else None
        state, reason = _raw_state(folder / name, own, alive)
        kept = folder / ("analysis.json" if own is not None else f"{name}.analysis.json")
        if own is None:
            reason = "; ".join(filter(None, [f"{SESSION} cannot be read" if unreadable else f"no {SESSION}", reason]))
        kind = kinds.kind_of(name)
        yield _made(run, folder / name, kind.name if kind else "", state, reason, kept, own or {})
    if not raws:
        state, reason = (NOTHING, f"{SESSION} cannot be read") if session is None else _without_raw(session, alive)
        yield _made(run, folder, "", state, reason, folder / "analysis.json", session or {})


def _raw_state(raw: Path, session: dict[str, Any] | None, alive: _Living) -> tuple[str, str]:
    """May a raw folder be parsed, and what is to be known of it?"""
    info = kinds.info_of(raw)
    has_ended = session is not None and session.get("state") in ("recorded", "failed")
    if raw.name.endswith("_ascend_ms") and info is None and not kinds.has_device_data(raw) and has_ended:
        return NOTHING, _ON_CPU
    if has_ended or (session is None and info is not None):
        return READY, ""
    who = session if session is not None else kinds.recorder_of(raw.name)
    return alive.state_of(who)


def _without_raw(session: dict[str, Any], alive: _Living) -> tuple[str, str]:
    if session.get("state") not in ("recorded", "failed"):
        state, reason = alive.state_of(session)
        return (state, reason) if state == RECORDING else (NOTHING, "its process ended, and left nothing")
    if session.get("backend") == "torch" and session.get("output"):
        return NOTHING, _TORCH
    return NOTHING, "nothing was recorded" if not session.get("output") else "its output is not in its folder"


class _Living:
    """Who of a run still records, as far as this host can tell."""

    def __init__(self, run: Path, unfinished: bool) -> None:
        self._run, self._unfinished = run, unfinished
        self._pointers: list[dict[str, Any]] | None = None

    def state_of(self, who: dict[str, Any]) -> tuple[str, str]:
        """Is a profile of this process ready, and why (not)?"""
        name = f"process {who.get('pid')} on {who.get('host')}" if who.get("pid") else "its process"
        is_running = self._is_running(who)
        if is_running:
            return RECORDING, f"{name} still records it"
        if is_running is None and not self._unfinished:
            return RECORDING, f"{name} may still record it: run this there, or with --unfinished"
        return READY, f"{name} did not end it: what is there may be incomplete"

    def _is_running(self, who: dict[str, Any]) -> bool | None:
        pointer = who if who.get("boot") and who.get("pid_start") else self._pointer_of(who)
        if pointer is not None:
            return identity.is_alive(pointer)
        if who.get("host") != identity.host() or not isinstance(who.get("pid"), int):
            return None
        return identity.pid_start(who["pid"]) is not None

    def _pointer_of(self, who: dict[str, Any]) -> dict[str, Any] | None:
        """The pointer file of a process, which is there while it runs, and after it was killed."""
        if self._pointers is None:
            folder = self._run / places.LIVE
            names = os.listdir(folder) if folder.is_dir() and not folder.is_symlink() else []
            read = [places.read_json(folder / name, 1 << 16) for name in names if name.endswith(".json")]
            self._pointers = [one for one in read if one is not None]
        same = [one for one in self._pointers if (one.get("host"), one.get("pid")) == (who.get("host"), who.get("pid"))]
        return same[-1] if same else None


def _made(run: Path, path: Path, kind: str, state: str, reason: str, kept: Path, session: dict[str, Any]) -> Profile:
    parts = path.relative_to(run / PROFILES).parts
    steps = [int(one[1]) for part in parts if (one := _STEP.fullmatch(part))]
    ranks = [int(one[1]) for part in parts if (one := _RANK.fullmatch(part))]
    stage, request = session.get("stage"), session.get("request")
    return Profile(
        str(path.relative_to(run)), kind, state, reason, kept,
        stage if isinstance(stage, str) and stage else parts[0] if len(parts) > 1 else "",
        _whole(session.get("step"), steps), _whole(session.get("rank"), ranks),
        request if isinstance(request, str) else "", _whole(session.get("bytes"), []),
    )  # fmt: skip


def _whole(value: Any, otherwise: list[int]) -> int | None:
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return value if usable else otherwise[0] if otherwise else None


def leads_out(raw: Path) -> str | None:
    """What of a raw folder must keep parsers from it: a link that leads elsewhere, a pipe or a device; None if nothing.

    Parsers follow links, read what they find and remove what they think is theirs.
    """
    for place, inner, files in os.walk(raw):
        for name in (*inner, *files):
            path = os.path.join(place, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode) and not places.is_inside(path, raw):
                return f"{os.path.relpath(path, raw)} is a link that leads out of the profile"
            if not (stat.S_ISLNK(mode) or stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                return f"{os.path.relpath(path, raw)} is neither a file nor a folder"
    return None
