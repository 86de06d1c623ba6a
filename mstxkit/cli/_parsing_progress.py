"""How far `mstxkit analyse` is: bars on a terminal, nothing in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..parsing import record
from ..parsing.profiles import Profile
from ..parsing.record import Record

if TYPE_CHECKING:
    from rich.progress import Progress

_A_SECOND = 4  # drawn so often: terminals may be far away
_NAME_LIMIT = 60


class Shown:
    """The bars, on standard error: one for all profiles, one for each that is being parsed."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._progress: Progress | None = None
        self._all: Any = None
        self._each: dict[str, Any] = {}

    def __enter__(self) -> Shown:
        from rich.console import Console

        console = Console(stderr=True)
        if not self._quiet and console.is_terminal:
            self._progress = _bars(console)
            self._progress.start()
            self._all = self._progress.add_task("profiles", total=None, count="")
        return self

    def loading(self, kind: str) -> None:
        """A framework is being loaded."""
        self._all_say(description=f"loading {kind}")

    def expect(self, count: int) -> None:
        """So many profiles are to come."""
        self._all_say(description="profiles", total=count, count=f"0/{count}")

    def _all_say(self, **fields: Any) -> None:
        if self._progress is not None:
            self._progress.update(self._all, **fields)

    def tell(self, profile: Profile, known: Record) -> None:
        """A profile began or ended."""
        if self._progress is None:
            return
        if known.state == record.PARSING:
            self._each[profile.path] = self._progress.add_task(_name(profile), total=None, count="")
            return
        if profile.path in self._each:
            self._progress.remove_task(self._each.pop(profile.path))
        self._progress.advance(self._all)
        every = self._progress.tasks[0]
        self._all_say(count=f"{every.completed:.0f}/{every.total or 0:.0f}")

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()


def _bars(console: Any) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True, refresh_per_second=_A_SECOND)


def _name(profile: Profile) -> str:
    from ..report.escape import for_terminal

    rank = "" if profile.rank is None else f" rank {profile.rank}"
    step = "" if profile.step is None else f" step {profile.step}"
    return "  " + for_terminal(f"{profile.stage}{step}{rank}", _NAME_LIMIT)
