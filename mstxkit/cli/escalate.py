"""`mstxkit escalate RUN`: ask ranks of a running job for a deeper profile of a stage, explain it first, wait for it."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

import typer

from . import FOUND_WRONG, _show

if TYPE_CHECKING:
    from rich.live import Live

    from ..analysis.suspects import Suspicion
    from ..control.explaining import Explanation
    from ..control.files import ControlFolder
    from ..control.progress import Progress
    from ..control.requests import Request

_LOOK_EVERY_S = 0.25
_RANKS_AT_MOST = 1 << 20
_FOLDERS_AT_MOST = 16
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_NS = 10**9
_UNDER_WAY = dict.fromkeys(("armed", "running", "draining"), "under way")
_STAGES = typer.Option(None, "--stage", metavar="STAGE", help="A stage, by any system's name; may be given repeatedly.")


def escalate(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    stage: Optional[list[str]] = _STAGES,  # noqa: UP045
    ranks: Optional[str] = typer.Option(  # noqa: UP045
        None, metavar="RANKS", help="0,2-5; or all; or suspect+peer: the slowest rank in the stage and an average one."
    ),
    steps: Optional[int] = typer.Option(  # noqa: UP045
        None, help="Every occurrence in so many steps in a row.", show_default="1"
    ),
    occurrences: Optional[int] = typer.Option(  # noqa: UP045
        None, help="Instead: the next so many occurrences of each stage."
    ),
    preset: str = typer.Option("full", help="light, kernels, comm, memory, full or deep."),
    sample: Optional[str] = typer.Option(  # noqa: UP045
        None, metavar="PARTS", help="A part of each occurrence: per=micro_batch,skip=2,record=1 (or mini_batch, "
        "decode_step)."
    ),
    limit_s: Optional[float] = typer.Option(None, help="Seconds after which a session is ended."),  # noqa: UP045
    limit_bytes: Optional[str] = typer.Option(  # noqa: UP045
        None, metavar="SIZE", help="Raw data after which it is: 500M, 2G."
    ),
    reason: str = typer.Option("", help="For people: why."),
    expires_s: Optional[float] = typer.Option(  # noqa: UP045
        None, help="Seconds after which no session begins any more.", show_default="3600"
    ),
    wait: bool = typer.Option(False, "--wait", help="Until it has ended; then 0 if it is done on every rank, else 1."),
    explain: bool = typer.Option(False, "--explain", help="Say what it would do, and do nothing."),
    cancel: Optional[str] = typer.Option(  # noqa: UP045
        None, metavar="ID", help="Take a request back, by its id or the beginning of it."
    ),
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object; times in ns."),
) -> None:  # fmt: skip
    """Ask ranks of a running job for a deeper profile of a stage; it is recorded when they next enter it."""
    from ..control import asking
    from ..errors import ReadError

    if not run.is_dir():
        raise ReadError(f"{run}: no such run folder")
    if cancel is not None:
        if stage or ranks:
            raise typer.BadParameter("it takes a request back; --stage and --ranks ask for one", param_hint="--cancel")
        _cancel(run, cancel, reason, json)
        return
    given = _given(stage, ranks, steps, occurrences, preset, sample, limit_s, limit_bytes, reason, expires_s)
    suspected = _suspicion(run, given["stages"]) if ranks == "suspect+peer" else None
    suspects = () if suspected is None else (suspected.suspect, suspected.peer)
    if explain:
        control = asking.control_of(run)
        _explain(run, control, asking.check(control, given, suspects, source="mstxkit escalate"), suspected, json)
        return
    request = asking.ask(run, given, suspects, source="mstxkit escalate")
    if not json:
        _tell(run, request, suspected)
    if wait:
        _wait(run, asking.control_of(run), request, suspects, json)
    elif json:
        _show.as_json({"request": request.as_json(), "suspects": list(suspects)})


# What is asked for.


def _given(
    stage: list[str] | None, ranks: str | None, steps: int | None, occurrences: int | None, preset: str,
    sample: str | None, limit_s: float | None, limit_bytes: str | None, reason: str, expires_s: float | None,
) -> dict[str, Any]:  # fmt: skip
    if not stage:
        raise typer.BadParameter("name the stage to profile", param_hint="--stage")
    if ranks is None:
        raise typer.BadParameter("say which ranks: 0,2-5, all or suspect+peer", param_hint="--ranks")
    now_ns = time.time_ns()
    given: dict[str, Any] = {
        "stages": stage, "ranks": _ranks(ranks), "steps": steps, "occurrences": occurrences, "preset": preset,
        "sample": None if sample is None else _sample(sample), "reason": reason, "created_ns": now_ns,
        "limits": {"seconds": limit_s, "bytes": None if limit_bytes is None else _bytes(limit_bytes)},
        "occasion": f"command line at {now_ns}",
    }  # fmt: skip
    return given if expires_s is None else {**given, "expires_ns": now_ns + _lifetime_ns(expires_s)}


def _lifetime_ns(seconds: float) -> int:
    if not 0 < seconds < 1e9:
        raise typer.BadParameter(f"{seconds:g}: a number of seconds above 0 is needed", param_hint="--expires-s")
    return int(seconds * _NS)


def _ranks(text: str) -> str | list[int]:
    """`0,2-5` -> [0, 2, 3, 4, 5]; words as they are."""
    if text in ("all", "suspect+peer"):
        return text
    found: list[int] = []
    for part in text.split(","):
        span = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", part, re.ASCII)
        first, last = (0, -1) if span is None else (int(span[1]), int(span[2] or span[1]))
        if not 0 <= last - first < _RANKS_AT_MOST:
            raise typer.BadParameter(f"{part!r} is no rank: give 0,2-5, all or suspect+peer", param_hint="--ranks")
        found += range(first, last + 1)
    return found


def _sample(text: str) -> dict[str, Any]:
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(equals and key and value for key, equals, value in pairs):
        raise typer.BadParameter(f"{text!r}: give per=micro_batch,skip=2,record=1", param_hint="--sample")
    return {key.strip(): int(value) if re.fullmatch(r"\d{1,9}", value, re.ASCII) else value for key, _, value in pairs}


def _bytes(text: str) -> int:
    """`2G` -> 2147483648; also GiB and GB, which mean the same."""
    told = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,3})?)\s*([kmgt]?)(?:i?b)?\s*", text.lower(), re.ASCII)
    if told is None:
        raise typer.BadParameter(f"{text!r} is no size: give 500M or 2G", param_hint="--limit-bytes")
    return int(float(told[1]) * _UNITS[told[2]])


def _suspicion(run: Path, names: list[str]) -> Suspicion:
    from .. import stages
    from ..analysis import suspects
    from ..reader import open_run

    return suspects.suspicion(open_run(run).stages(), {stages.canonical(name) for name in names})


# What is said of it.


def _tell(run: Path, request: Request, suspected: Suspicion | None) -> None:
    from ..report.escape import for_terminal
    from . import _requests

    typer.echo(f"request {request.id}: {for_terminal(_requests.asked(request))}")
    if suspected is not None:
        typer.echo(f"  {_suspected(suspected)}")
    where = for_terminal(str(run))
    typer.echo(f"  mstxkit status {where} shows how it stands; mstxkit escalate {where} --cancel {request.id[:8]}")


def _suspected(found: Suspicion) -> str:
    from ..report.escape import for_terminal
    from ..report.units import duration, share_over

    over = f" of the last {found.steps} steps" if found.steps else ""
    return (
        f"rank {found.suspect} is suspected: {duration(found.suspect_ns)} in {for_terminal(found.stage)}{over}, "
        f"{share_over(found.suspect_ns, found.peer_ns)} over rank {found.peer}, the middle of {found.ranks}"
    )


def _cancel(run: Path, id: str, reason: str, json: bool) -> None:
    from ..control import asking
    from . import _requests

    found = asking.cancel(run, id, reason or "cancelled from the command line")
    if json:
        _show.as_json(_requests.as_dict(found))
    elif found.has_ended:
        typer.echo(f"request {found.asked.request.id} had ended before: {found}")
    else:
        typer.echo(f"request {found.asked.request.id} is not wanted any more; it was: {found}")


def _explain(run: Path, control: ControlFolder, request: Request, suspected: Suspicion | None, json: bool) -> None:
    from ..control import explaining, progress
    from ..reading import profiles

    suspects = () if suspected is None else (suspected.suspect, suspected.peer)
    said = progress.heard(control)
    others = [progress.progress(one, said) for one in progress.asked(control)]
    had = [one.told for one in profiles.sessions(str(control.path.parent), control.run_id, [])]
    found = explaining.explained(request, said, suspects, others=others, sessions=had, environment=os.environ)
    free = _free_bytes(run)
    if json:
        told = {"request": request.as_json(), "suspects": list(suspects), "free_bytes": free, **found.as_json()}
        _show.as_json(told)
        return
    _print_explanation(request, found, suspected, free)


def _free_bytes(run: Path) -> int | None:
    try:
        space = os.statvfs(run)
    except OSError:
        return None
    return space.f_bavail * space.f_frsize


def _print_explanation(request: Request, found: Explanation, suspected: Suspicion | None, free: int | None) -> None:
    from rich.table import Table

    from ..report.escape import for_rich, for_terminal
    from ..report.units import size
    from . import _requests

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    lines = [("asks for", _requests.asked(request))]
    lines += [] if suspected is None else [("suspect", _suspected(suspected))]
    lines += [("who", line) for line in _requests.participants(found.recorders)]
    lines += [("when", line) for line in found.when]
    lines += [("pause", found.pause.words), ("size", found.size)]
    lines += [] if free is None else [("", f"{size(free)} are free on the run's disk{_too_little(found, free)}")]
    lines += [("waits", found.timeout), ("", "nothing was sent: this is --explain")]
    last = ""
    for label, text in lines:
        table.add_row("" if label == last else label, for_rich(for_terminal(text)))
        last = label
    _show.console().print(table)


def _too_little(found: Explanation, free: int) -> str:
    return ": TOO LITTLE" if found.total_mb is not None and found.total_mb * 1e6 > free else ""


# Waiting.


def _wait(run: Path, control: ControlFolder, request: Request, suspects: tuple[int, ...], json: bool) -> None:
    from . import _requests

    try:
        found = _watched(control, request, suspects, json)
    except KeyboardInterrupt:
        typer.echo(f"not waiting any more; request {request.id} goes on: mstxkit status {run}", err=True)
        raise typer.Exit(FOUND_WRONG) from None
    kept = _kept(control, request)
    if json:
        _show.as_json({**_requests.as_dict(found), "profiles": [one.folder for one in kept]})
    else:
        typer.echo(f"request {request.id}: {found}")
        for one in kept[:_FOLDERS_AT_MOST]:
            typer.echo(f"  {_show.path(run, one.folder)}  {_requests.size_of(one)}")
        if len(kept) > _FOLDERS_AT_MOST:
            typer.echo(f"  and {len(kept) - _FOLDERS_AT_MOST} more: mstxkit status {run} --json")
    raise typer.Exit(0 if found.is_done else FOUND_WRONG)


def _kept(control: ControlFolder, request: Request) -> list[Any]:
    from ..reading import profiles

    found = profiles.sessions(str(control.path.parent), control.run_id, [])
    return [one for one in found if one.key[0] == request.id]


def _watched(control: ControlFolder, request: Request, suspects: tuple[int, ...], json: bool) -> Progress:
    """How it stood at the end; shown meanwhile as this output can."""
    console = _show.console()
    if json:
        return _until_ended(control, request, suspects, lambda found: None)
    if not console.is_terminal:
        return _until_ended(control, request, suspects, _Lines().show)
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        return _until_ended(control, request, suspects, _Screen(live).show)


def _until_ended(
    control: ControlFolder, request: Request, suspects: tuple[int, ...], show: Callable[[Progress], None]
) -> Progress:
    """Looks again and again; ends too when nobody is left who could go on with it."""
    from ..control import progress

    while True:
        began = time.monotonic()
        said = progress.heard(control)
        sent = (one for one in progress.asked(control) if one.request.id == request.id)
        found = progress.progress(next(sent, progress.Asked(request, suspects)), said)
        show(found)
        if found.has_ended or all(one.is_alive is False for one in said):
            return found
        time.sleep(max(_LOOK_EVERY_S, 4 * (time.monotonic() - began)))


class _Screen:
    """On a terminal: a table in place, drawn again where something changed."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._shown: Progress | None = None

    def show(self, found: Progress) -> None:
        """Draw it, if it is new."""
        from . import _requests

        if found != self._shown:
            self._shown = found
            self._live.update(_requests.by_rank(found), refresh=True)


class _Lines:
    """In a pipe: a line where a rank's state changes; of many ranks, where their numbers do.

    A request of thousands of sessions does not fill a log: armed and running are the same from its first one on, and
    sessions are told when their number has doubled.
    """

    def __init__(self) -> None:
        self._told: dict[int, Any] = {}

    def show(self, found: Progress) -> None:
        """Say what is new."""
        from . import _requests

        if len(found.reports) > _requests.ROWS_AT_MOST:
            states = sorted(_UNDER_WAY.get(report.state, report.state) for report in found.reports)
            self._tell(-1, states, str(found))
            return
        for report in found.reports:
            phase = _UNDER_WAY.get(report.state, report.state) if report.recorded else report.state
            about = (phase, _requests.window(report), report.recorded.bit_length(), report.reason)
            self._tell(report.rank, about, _requests.line(report))

    def _tell(self, whom: int, about: Any, text: str) -> None:
        if self._told.get(whom) != about:
            self._told[whom] = about
            typer.echo(text)
