"""Processes of a run, as their files tell of them, for who judges how each ended."""

from __future__ import annotations

from typing import Any

from mstxkit.reading import endings
from mstxkit.reading.endings import Life
from mstxkit.reading.processes import Process

SECOND = 1_000_000_000
AGENT, SHELL = 10, 1


class Told:
    """Processes of a run, as the files of each tell of it; `ends` judges them. Times in seconds."""

    def __init__(self) -> None:
        self.lives: list[Life] = []

    def add(
        self, pid: int, state: str, last: float, *, ppid: int = AGENT, inside: float | None = None,
        start: float = 0, gone: float | None = None, watched: bool = True, host: str = "h", attempt: int = 0,
        error: str | None = None, status: int | None = None, fatal: str = "", signal: int = 0, was_told: bool = False,
        **identity: Any,
    ) -> Told:  # fmt: skip
        index = len(self.lives)
        process = Process((host, pid, "5eed"), index, {"ppid": ppid, **identity}, state=state)
        process.attempt, process.error, process.exit_status = attempt, error, status
        process.fatal, process.signal, process.was_told = fatal, signal, was_told
        seen, entered = (None if time is None else int(time * SECOND) for time in (gone, inside))
        self.lives.append(Life(process, int(start * SECOND), int(last * SECOND), seen, entered, watched))
        return self

    def ends(self) -> list[tuple[int, str, str | None]]:
        judged = endings.judge_endings(self.lives)
        return [(life.process.pid, *judged[life.process.index]) for life in self.lives]

    def states(self) -> dict[int, str]:
        return {pid: state for pid, state, _ in self.ends()}
