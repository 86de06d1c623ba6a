"""A backend whose recorder does as it is told: sessions of this process without a framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Sequence

from mstxkit.profiling import presets
from mstxkit.profiling.backends._session import ProfilerSession
from mstxkit.profiling.declare import Options, Preset
from mstxkit.profiling.session import OneSession, Recorded
from mstxkit.store.session_file import Order


class Recorder:
    """Goes wrong where `fails` says so, by an exception; writes what it is told to, where it is told to."""

    notes = ("a note of the profiler",)

    def __init__(self, backend: Tried, folder: Path) -> None:
        self.backend, self.on_disk = backend, backend.on_disk
        self.folder = folder / "host_1_2_tried"
        self.records = False

    def start(self) -> None:
        self.backend.calls.append("start")
        self.backend.act("start")
        self.records = True
        self.folder.mkdir()
        (self.folder / "data").write_bytes(b"12345")

    def stop(self) -> None:
        self.backend.calls.append("stop")
        self.records = False
        self.backend.act("stop")

    def close(self) -> None:
        self.records = False

    def is_recording(self) -> bool:
        return self.records

    def output(self) -> Path | None:
        return self.folder if self.folder.exists() else None

    def lacking(self, output: Path, holds: str = "") -> str | None:
        return self.backend.lacks


class Tried:
    """The backend.

    Attributes:
        fails: What is raised where: in `start`, `stop`, `device`.
        then: What else happens there.
        number: The device.
    """

    name = "tried"

    def __init__(self) -> None:
        self.on_disk = True
        self.number: int | None = None
        self.fails: dict[str, BaseException] = {}
        self.then: dict[str, Callable[[], object]] = {}
        self.lacks: str | None = None
        self.calls: list[str] = []
        self.limits: list[int | None] = []
        self.recorder: Recorder | None = None

    def act(self, where: str) -> None:
        self.then.get(where, lambda: None)()
        if where in self.fails:
            raise self.fails[where]

    def device(self) -> int | None:
        self.act("device")
        return self.number

    def why_not(self) -> str | None:
        return None

    def described(self, preset: Preset) -> tuple[Options, tuple[str, ...]]:
        return {"level": preset.level}, ("a note of the options",)

    def start(self, preset: Preset, folder: Path, limit_bytes: int | None = None) -> ProfilerSession:
        self.limits.append(limit_bytes)
        return ProfilerSession.begun(self.name, folder, self._build)

    def _build(self, folder: Path) -> Recorder:
        self.recorder = Recorder(self, folder)
        return self.recorder


class Run:
    """A run folder with this process's session in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.session = OneSession()

    def order(self, **changes: Any) -> Order:
        order = Order(
            self.folder, "a" * 32, 3, 8, "actor", "actor_update", 7, presets.load_preset("full"), "ab" * 8, "slow"
        )
        return order._replace(**changes)

    def begin(self, **changes: Any) -> str | None:
        return self.session.begin(self.order(**changes))

    def end(self, why: str = "", steps: Sequence[int] = ()) -> Recorded:
        """Ends what is open."""
        recorded = self.session.end(why, list(steps))
        assert recorded is not None
        return recorded

    def files(self) -> list[Path]:
        return sorted(self.folder.rglob("session.json"))

    def told(self) -> dict[str, Any]:
        """The one session.json."""
        (file,) = self.files()
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found
