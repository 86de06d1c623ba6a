"""The profiles of a run: sessions with their `session.json`, and raw folders that killed processes left without one.

Nothing below the run is trusted: no link is followed, no name leads out of the folder it is found in, sizes are capped.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Iterator, NamedTuple

from ..host import folders, identity, life
from ..store import documents, layout, process_pointer
from ..store.layout import ANALYSIS_FILE, PROFILES, SESSION_FILE
from . import kinds

READY, RECORDING, NOTHING = "ready", "recording", "nothing to do"
_DEEPEST = 8
_TORCH = "traces of torch.profiler need no parsing"
_ON_CPU = "MindSpore parses what it recorded on a CPU only in the process that recorded it"


class Profile(NamedTuple):
    """One profile of a run. Stage, step, rank and request are those of its session, else as its path says."""

    path: str  # its folder, relative to the run: the raw one where there is one, else that of its session
    kind: str  # what parses it, a name of `kinds.KINDS`; "" where nothing does
    state: str  # ready, recording (left out), or nothing to do
    reason: str  # why it is not ready, or what a reader should know
    record_file: Path  # where the result of its parse is kept
    stage: str
    step: int | None
    rank: int | None
    request: str
    bytes: int | None  # of the raw data, as its session says


def of_run(run: Path, unfinished: bool = False) -> list[Profile]:
    """All profiles of a run, by stage, step and rank; unfinished ones too, which a process on another host may still be
    recording: nobody here can ask it.
    """
    top = run / PROFILES
    if not top.is_dir() or top.is_symlink():
        return []
    alive, places = _Living(run, unfinished), list(_walk_folders(top))
    ours = _of_requests(top, places)
    with_their_data = set(ours.values())
    others = (place for place in places if place[0] not in with_their_data)
    every = (profile for place in others for profile in _profiles_of(run, *place, alive, ours))
    return sorted(every, key=lambda profile: (profile.stage, profile.step or 0, profile.rank or 0, profile.path))


def _walk_folders(top: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Each folder that holds a session or raw profiles, with the names of these and of its files."""
    for place, inner, files in os.walk(top):
        folder = Path(place)
        raws = [name for name in inner if kinds.kind_of(name) and not (folder / name).is_symlink()]
        is_deep = len(folder.relative_to(top).parts) >= _DEEPEST
        inner[:] = [] if is_deep else [name for name in inner if name not in raws]
        if raws or SESSION_FILE in files:
            yield folder, sorted(raws), files


def _of_requests(top: Path, places: list[tuple[Path, list[str], list[str]]]) -> dict[Path, Path]:
    """The raw folders among these that lie in the folder of a request, each with the folder of its session."""
    raws, ours = {folder / name for folder, names, _ in places for name in names}, {}
    for folder, names, files in places:
        session = documents.read_json(folder / SESSION_FILE) if SESSION_FILE in files and not names else None
        output, request = (session or {}).get("output"), (session or {}).get("request")
        if isinstance(output, str) and isinstance(request, str):
            parts = layout.data_parts(folder.relative_to(top).parts, output, request)
            if parts is not None and (raw := top.joinpath(*parts)) in raws:
                ours[raw] = folder
    return ours


def _profiles_of(
    run: Path, folder: Path, raws: list[str], files: list[str], alive: _Living, ours: dict[Path, Path]
) -> Iterator[Profile]:
    session = documents.read_json(folder / SESSION_FILE) if SESSION_FILE in files else None
    is_unreadable = SESSION_FILE in files and session is None
    lack = f"{SESSION_FILE} cannot be read" if is_unreadable else f"no {SESSION_FILE}"
    beside = [name for name in raws if folder / name not in ours]
    for raw in (folder / name for name in raws):
        below, own, kept = ours.get(raw), None, folder / f"{raw.name}.{ANALYSIS_FILE}"
        if below is not None:
            own, kept = documents.read_json(below / SESSION_FILE) or {}, below / ANALYSIS_FILE
        elif session is not None and (session.get("output") == raw.name or len(beside) == 1):
            own, kept = session, folder / ANALYSIS_FILE
        state, reason = _raw_state(raw, own, alive)
        if own is None:
            reason = f"{lack}; {reason}" if reason else lack
        yield _make_profile(run, raw, state, reason, kept, own or {}, below)
    if SESSION_FILE in files and not beside:
        state, reason = (NOTHING, lack) if session is None else _without_raw(session, alive)
        yield _make_profile(run, folder, state, reason, folder / ANALYSIS_FILE, session or {})


def _raw_state(raw: Path, session: dict[str, Any] | None, alive: _Living) -> tuple[str, str]:
    """May a raw folder be parsed, and why not?"""
    info = kinds.info_of(raw)
    has_ended = session is not None and session.get("state") in ("recorded", "failed")
    if raw.name.endswith("_ascend_ms") and info is None and not kinds.has_device_data(raw) and has_ended:
        return NOTHING, _ON_CPU
    if has_ended or (session is None and info is not None):
        return READY, ""
    return alive.state_of(session if session is not None else kinds.recorder_of(raw.name))


def _without_raw(session: dict[str, Any], alive: _Living) -> tuple[str, str]:
    if session.get("state") not in ("recorded", "failed"):
        state, reason = alive.state_of(session)
        return (state, reason) if state == RECORDING else (NOTHING, "its process ended, and left nothing")
    if session.get("backend") == "torch" and session.get("output"):
        return NOTHING, _TORCH
    stored = session.get("stored")
    if isinstance(stored, dict):
        return NOTHING, f"its data are on {stored.get('host')}: mstxkit profiles RUN --fetch, there"
    if isinstance(session.get("removed"), dict):
        return NOTHING, "its data were removed to make room"
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
        pointer: dict[str, Any] | None = who
        if not (who.get("boot") and who.get("pid_start")):  # its pointer file: there while it runs, and after a kill
            if self._pointers is None:
                folder = self._run / layout.LIVE
                names = documents.names_in(folder, layout.POINTER)
                read = (documents.read_json(folder / name, process_pointer.LIMIT_BYTES) for name in names)
                self._pointers = [pointer for pointer in read if pointer is not None]
            process = (who.get("host"), who.get("pid"))
            same = [pointer for pointer in self._pointers if (pointer.get("host"), pointer.get("pid")) == process]
            pointer = same[-1] if same else None
        if pointer is not None:
            return life.is_alive(pointer)
        if who.get("host") != identity.name_host() or not isinstance(who.get("pid"), int):
            return None
        return identity.pid_start(who["pid"]) is not None


def _make_profile(
    run: Path, path: Path, state: str, reason: str, kept: Path, session: dict[str, Any], below: Path | None = None
) -> Profile:
    parts = (below or path).relative_to(run / PROFILES).parts
    step, rank = layout.step_and_rank(parts)
    kind = kinds.kind_of(path.name)
    stage, request = session.get("stage"), session.get("request")
    return Profile(
        str(path.relative_to(run)), kind.name if kind else "", state, reason, kept,
        stage if isinstance(stage, str) and stage else parts[0] if len(parts) > 1 else "",
        _whole_or(session.get("step"), step), _whole_or(session.get("rank"), rank),
        request if isinstance(request, str) else "", _whole_or(session.get("bytes"), None),
    )  # fmt: skip


def _whole_or(value: Any, otherwise: int | None) -> int | None:
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return value if usable else otherwise


def leads_out(raw: Path) -> str | None:
    """Why parsers must not read a raw folder: a link that leads elsewhere, a pipe or a device in it; None if they may.

    Parsers follow links, read what they find and remove what they think is theirs.
    """
    for place, inner, files in os.walk(raw):
        for name in (*inner, *files):
            path = os.path.join(place, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode) and not folders.is_inside(path, raw):
                return f"{os.path.relpath(path, raw)} is a link that leads out of the profile"
            if not (stat.S_ISLNK(mode) or stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                return f"{os.path.relpath(path, raw)} is neither a file nor a folder"
    return None
