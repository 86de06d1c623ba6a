"""`mstxkit escalate RUN`: ask ranks of a running job for a deeper profile of a stage, explain it first, wait for it."""

from __future__ import annotations

import os
import re
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import typer

from ..escalation import asking, explaining
from ..reading.report.escape import for_rich, for_terminal
from ..reading.report.units import share_over, write_duration, write_size
from ..store import fate, groups, whereabouts
from ..store.options import REQUEST, list_settable
from ..store.session_file import read_sessions
from . import FOUND_WRONG, _opening, _parsing, _requests, _show, find_run

if TYPE_CHECKING:
    from ..escalation.explaining import Explanation
    from ..reading.suspects import Suspicion
    from ..store.control_folder import ControlFolder
    from ..store.fate import Progress
    from ..store.request import Request

_SOURCE = "mstxkit escalate"
_LOOK_EVERY_S = 0.25
_RANKS_AT_MOST = 1 << 20
_FOLDERS_AT_MOST = 16
_UNDER_WAY = dict.fromkeys(("armed", "running", "draining"), "under way")
_STAGES_HELP = "A stage, by any system's name; may be given repeatedly."
_RANKS_HELP = (
    "0,2-5; or all; or suspect+peer: the rank that a verdict blames, else the slowest, and a peer; or groups: "
    "host:NAME, role:actor, dp:3, tp:0, pp:last, peers:3 (a rank and a data-parallel peer), several by commas."
)
_SET_HELP = "An option over the preset: level=1, memory=true; may be given repeatedly."
_SAMPLE_HELP = "A part of each occurrence: per=micro_batch,skip=2,record=1 (or mini_batch, decode_step)."
_STEPS_HELP = "Every occurrence in so many steps in a row.  [default: 1]"
_EXPIRES_HELP = "Seconds after which no session begins any more.  [default: 3600]"
_FORCE_HELP = "Also where a session comes near HCCL's time-out on ranks that wait for these."
_ANALYSE_HELP = "With --wait: then parse what was recorded, here, and say how to open it."
_CANCEL_HELP = "Take a request back, by its id or the beginning of it."


def escalate(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    stage: Optional[list[str]] = typer.Option(None, "--stage", metavar="STAGE", help=_STAGES_HELP),
    ranks: Optional[str] = typer.Option(None, metavar="RANKS", help=_RANKS_HELP),
    steps: Optional[int] = typer.Option(None, help=_STEPS_HELP, show_default=False),
    occurrences: Optional[int] = typer.Option(
        None, help="Instead: the next so many occurrences of each stage.", hidden=True
    ),
    preset: str = typer.Option("full", help="light, kernels, comm, memory, full or deep."),
    set: Optional[list[str]] = typer.Option(None, "--set", metavar="OPTION=VALUE", help=_SET_HELP, hidden=True),
    sample: Optional[str] = typer.Option(None, metavar="PARTS", help=_SAMPLE_HELP, hidden=True),
    limit_s: Optional[float] = typer.Option(None, help="Seconds after which a session is ended.", hidden=True),
    limit_bytes: Optional[str] = typer.Option(
        None, metavar="SIZE", help="Raw data after which it is: 500M, 2G.", hidden=True
    ),
    reason: str = typer.Option("", help="For people: why.", hidden=True),
    expires_s: Optional[float] = typer.Option(None, help=_EXPIRES_HELP, show_default=False, hidden=True),
    force: bool = typer.Option(False, "--force", help=_FORCE_HELP, hidden=True),
    wait: bool = typer.Option(False, "--wait", help="Until it has ended; then 0 if it is done on every rank, else 1."),
    analyse: bool = typer.Option(False, "--analyse", help=_ANALYSE_HELP, hidden=True),
    explain: bool = typer.Option(False, "--explain", help="Say what it would do, and do nothing."),
    cancel: Optional[str] = typer.Option(None, metavar="ID", help=_CANCEL_HELP),
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object; times in ns.", hidden=True),
) -> None:
    """Ask ranks of a running job for a deeper profile of a stage.

    It is recorded when they next enter the stage. With --wait it ends with 1 where that is not done on every rank.

    Example: mstxkit escalate runs/exp7 --stage actor_update --ranks 0,3 --wait
    """
    find_run(run)
    if cancel is not None:
        if stage or ranks:
            raise typer.BadParameter("it takes a request back; --stage and --ranks ask for one", param_hint="--cancel")
        progress = asking.cancel_request(run, cancel, reason or "cancelled from the command line")
        then = "had ended before" if progress.has_ended else "is not wanted any more; it was"
        if json:
            _show.as_json(_requests.as_dict(progress))
        else:
            typer.echo(f"request {progress.asked.request.id} {then}: {progress}")
        return
    if analyse and not wait:
        raise typer.BadParameter("it parses what has been recorded: add --wait", param_hint="--analyse")
    if not stage:
        raise typer.BadParameter("name the stage to profile", param_hint="--stage")
    if ranks is None:
        raise typer.BadParameter("say which ranks: 0,2-5, all, suspect+peer, dp:3", param_hint="--ranks")
    now_ns = time.time_ns()
    options: dict[str, Any] = {
        "stages": stage, "ranks": _read_ranks(ranks), "steps": steps, "occurrences": occurrences, "preset": preset,
        "sample": None if sample is None else _read_sample(sample), "reason": reason, "created_ns": now_ns,
        "limits": {"seconds": limit_s, "bytes": _requests.bytes_of(limit_bytes, "--limit-bytes")},
        "occasion": f"command line at {now_ns}",
        **({"options": _read_options(set)} if set else {}), **({"force": True} if force else {}),
    }  # fmt: skip
    if expires_s is not None:
        if not 0 < expires_s < 1e9:
            raise typer.BadParameter(f"{expires_s:g}: a number of seconds above 0 is needed", param_hint="--expires-s")
        options["expires_ns"] = now_ns + int(expires_s * 1e9)
    suspected = None
    if ranks == "suspect+peer":
        from ..reading.suspects import in_words, suspected_in

        suspected = suspected_in(run, options["stages"])
        options |= {"reason": reason or in_words(suspected), "role": suspected.role}
    suspects = asking.find_ranks(run, options, _SOURCE) if suspected is None else (suspected.suspect, suspected.peer)
    if explain:
        _explain_plan(run, options, suspects, suspected, json)
        return
    request = asking.ask_ranks(run, options, suspects, source=_SOURCE)
    if not json:
        _tell_request(run, request, suspects, suspected)
    if wait:
        _wait_for_end(run, asking.control_of(run), request, suspects, analyse, json)
    elif json:
        _show.as_json({"request": request.as_json(), "suspects": list(suspects)})


def _read_ranks(text: str) -> str | list[int]:
    """`0,2-5` -> [0, 2, 3, 4, 5]; words and groups as they are."""
    if text in ("all", "suspect+peer") or groups.are_groups(text):
        return text
    ranks: list[int] = []
    for part in text.split(","):
        span = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", part, re.ASCII)
        first, last = (0, -1) if span is None else (int(span[1]), int(span[2] or span[1]))
        if not 0 <= last - first < _RANKS_AT_MOST:
            words = f"{part!r} is no rank: give 0,2-5, all, suspect+peer or {', '.join(groups.FORMS)}"
            raise typer.BadParameter(words, param_hint="--ranks")
        ranks += range(first, last + 1)
    return ranks


def _read_options(pairs: list[str]) -> dict[str, Any]:
    """`level=1` -> {"level": "level1"}, by the table of options."""
    table, values = {option.name: option for option in list_settable(REQUEST)}, {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r}: give level=1 or memory=true", param_hint="--set")
        if name in values:
            raise typer.BadParameter(f"{name} is given twice", param_hint="--set")
        values[name] = table[name].read(text) if name in table else text
    return values


def _read_sample(text: str) -> dict[str, Any]:
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(equals and key and value for key, equals, value in pairs):
        raise typer.BadParameter(f"{text!r}: give per=micro_batch,skip=2,record=1", param_hint="--sample")
    return {key.strip(): int(value) if re.fullmatch(r"\d{1,9}", value, re.ASCII) else value for key, _, value in pairs}


def _tell_request(run: Path, request: Request, meant: tuple[int, ...], suspected: Suspicion | None) -> None:
    typer.echo(f"request {request.id}: {for_terminal(_requests.write_request(request))}")
    if suspected is not None:
        typer.echo(f"  {_tell_suspected(suspected)}")
    elif meant:
        typer.echo(f"  {for_terminal(f'{request.ranks}: {_requests.write_ranks(meant)}')}")
    absent = tuple(asking.find_absent(asking.control_of(run), request, meant))
    if absent:
        stages = for_terminal(" or ".join(request.stages))
        why = f"nothing begins there before {stages} is entered for the first time"
        typer.echo(f"  {_requests.write_ranks(absent)}: {why}")
    where = for_terminal(str(run))
    typer.echo(f"  mstxkit status {where} shows how it stands; mstxkit escalate {where} --cancel {request.id[:8]}")


def _tell_suspected(suspicion: Suspicion) -> str:
    from ..reading.suspects import write_accusation

    if suspicion.verdict is not None:
        return f"{write_accusation(suspicion)}; rank {suspicion.peer} is a healthy peer of {suspicion.ranks}"
    over = f" of the last {suspicion.steps} steps" if suspicion.steps else ""
    took, more = write_duration(suspicion.suspect_ns), share_over(suspicion.suspect_ns, suspicion.peer_ns)
    return (
        f"rank {suspicion.suspect} is suspected: {took} in {for_terminal(suspicion.stage)}{over}, {more} over rank "
        f"{suspicion.peer}, the middle of {suspicion.ranks}; by its time alone: {suspicion.why_by_time}"
    )


def _explain_plan(
    run: Path, options: dict[str, Any], suspects: tuple[int, ...], suspected: Suspicion | None, json: bool
) -> None:
    control = asking.control_of(run)
    request = asking.check_for_ranks(control, options, suspects, source=_SOURCE)
    listeners, kept = fate.read_heard(control), list(read_sessions(control.path.parent, control.run_id))
    judge = fate.Fates(listeners, lambda: kept)
    others, had = list(map(judge.progress, fate.read_asked(control))), [session.document for session in kept]
    about = (request, listeners, suspects)
    seen = whereabouts.read_seen(control.path.parent, control.run_id)
    explanation = explaining.explain_request(*about, others=others, sessions=had, environment=os.environ, seen=seen)
    try:
        space = os.statvfs(run)
        free = space.f_bavail * space.f_frsize
    except OSError:
        free = None
    if json:
        document = {"request": request.as_json(), "suspects": list(suspects), "free_bytes": free}
        _show.as_json({**document, **explanation.as_json()})
    else:
        meant = f"{request.ranks}: {_requests.write_ranks(suspects)}" if suspects else None
        meant = meant if suspected is None else _tell_suspected(suspected)
        _print_explanation(request, explanation, meant, free)


def _print_explanation(request: Request, explanation: Explanation, meant: str | None, free: int | None) -> None:
    table = _show.make_table("", has_header=False, style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    lines = [("asks for", _requests.write_request(request))]
    lines += [] if meant is None else [("ranks", meant)]
    lines += [("who", line) for line in _requests.write_participants(explanation.recorders)]
    lines += [("when", line) for line in explanation.when]
    lines += [("records", explanation.records)]
    lines += [("pause", explanation.pause.words), ("size", explanation.size)]
    if free is not None:
        is_too_little = explanation.total_mb is not None and explanation.total_mb * 1e6 > free
        lines.append(("", f"{write_size(free)} are free on the run's disk{': TOO LITTLE' if is_too_little else ''}"))
    lines += [("waits", explanation.timeout), ("", "nothing was sent: this is --explain")]
    last = ""
    for label, text in lines:
        table.add_row("" if label == last else label, for_rich(for_terminal(text)))
        last = label
    _show.open_console().print(table)


def _wait_for_end(
    run: Path, control: ControlFolder, request: Request, suspects: tuple[int, ...], analyse: bool, json: bool
) -> None:
    try:
        progress = _watch_progress(control, request, suspects, json)
    except KeyboardInterrupt:
        typer.echo(f"not waiting any more; request {request.id} goes on: mstxkit status {run}", err=True)
        raise typer.Exit(FOUND_WRONG) from None
    recorded = read_sessions(control.path.parent, control.run_id)
    kept = [session for session in recorded if session.key[0] == request.id]
    wanted, done = _parsing.Wanted((), (), request.id, None), None
    if analyse and kept:
        done = _parsing.analyse_profiles(run, wanted, _parsing.plan_of(), False, quiet=json)
    if json:
        analysis = {} if done is None else {"analysis": _parsing.as_json(run, done)}
        _show.as_json({**_requests.as_dict(progress), "profiles": [session.folder for session in kept], **analysis})
    else:
        typer.echo(f"request {request.id}: {progress}")
        for session in kept[:_FOLDERS_AT_MOST]:
            typer.echo(f"  {for_terminal(str(run / session.folder))}  {_requests.size_of(session)}")
        if len(kept) > _FOLDERS_AT_MOST:
            typer.echo(f"  and {len(kept) - _FOLDERS_AT_MOST} more: mstxkit status {run} --json")
        if done is not None:
            _parsing.show_parsed(run, done)
        for line in _opening.describe_opening(run, control.run_id, [request.id]) if done is None else ():
            typer.echo(line)
    raise typer.Exit(0 if progress.is_done and not (done and done.is_wrong) else FOUND_WRONG)


def _watch_progress(control: ControlFolder, request: Request, suspects: tuple[int, ...], json: bool) -> Progress:
    """How it stood at the end; shown meanwhile as this output can. Ends too when nobody is left to go on with it."""
    from rich.live import Live

    console, last = _show.open_console(), dict[int, Any]()
    shown: Progress | None = None
    with Live(console=console, auto_refresh=False) if console.is_terminal and not json else nullcontext() as table:
        while True:
            began = time.monotonic()
            listeners = fate.read_heard(control)
            sent = (asked for asked in fate.read_asked(control) if asked.request.id == request.id)
            judge = fate.Fates(listeners, lambda: read_sessions(control.path.parent, control.run_id))
            progress = judge.progress(next(sent, fate.Asked(request, suspects)))
            if table is not None and progress != shown:
                table.update(_requests.by_rank(progress), refresh=True)  # in place
            elif progress != shown and not json:
                _tell_changes(progress, last)
            shown = progress
            if progress.has_ended or all(listener.is_alive is False for listener in listeners):
                return progress
            time.sleep(max(_LOOK_EVERY_S, 4 * (time.monotonic() - began)))


def _tell_changes(progress: Progress, last: dict[int, Any]) -> None:
    """In a pipe: a line where a rank's state changes; of many ranks, where their numbers do. `last`: what it keeps.

    A request of thousands of sessions does not fill a log: armed and running are the same from its first one on, and
    sessions are told when their number has doubled.
    """
    news: list[tuple[int, Any, str]] = []
    if len(progress.reports) > _requests.ROWS_AT_MOST:
        states = sorted(_UNDER_WAY.get(report.state, report.state) for report in progress.reports)
        news.append((-1, states, str(progress)))
    else:
        for report in progress.reports:
            phase = _UNDER_WAY.get(report.state, report.state) if report.recorded else report.state
            about = (phase, _requests.write_window(report), report.recorded.bit_length(), report.reason)
            news.append((report.rank, about, _requests.write_report(report)))
    for whom, about, text in news:
        if last.get(whom) != about:
            last[whom] = about
            typer.echo(text)
