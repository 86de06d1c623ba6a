"""What `mstxkit profiles --analyse` does and shows: its profiles, tools, progress and results."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple, TypeVar

import typer

from .. import stages
from ..errors import ReadError
from ..parsing import kinds, lock, profiles, records, tools, work
from ..parsing.profiles import Profile
from ..parsing.records import ParseRecord
from ..reading.report.escape import for_rich, for_terminal
from ..reading.report.units import write_duration, write_size
from ..store import layout
from . import _opening, _show

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")
_A_SECOND = 4  # bars are drawn so often: terminals may be far away
_NAME_LIMIT = 60
NOT_PARSED = "not parsed"
_ENDED = (records.PARSED, records.FAILED)
_STYLES = {records.PARSED: "green", records.FAILED: "bold red", profiles.RECORDING: "yellow", NOT_PARSED: "yellow"}


class Wanted(NamedTuple):
    """Which profiles. `again`: "failed" or "all" for what has been parsed before."""

    stages: tuple[str, ...]
    ranks: tuple[int, ...]
    request: str | None
    again: str | None


class Row(NamedTuple):
    """One profile and its parse, if there was one; `state` is what the table shows."""

    profile: Profile
    record: ParseRecord | None
    state: str
    now: bool = False


class Done(NamedTuple):
    """All rows by their profile's path, what is missing, and what there is to parse with."""

    rows: dict[str, Row]
    missing: list[str]
    versions: dict[str, str]
    msprof: str | None = None
    interrupted: bool = False

    @property
    def is_wrong(self) -> bool:
        """Did anything fail, or is it missing?"""
        return bool(self.missing) or self.interrupted or any(row.state == records.FAILED for row in self.rows.values())


def plan_of(jobs: int | None = None, limit_s: float | None = None, export: str = "") -> work.ParsePlan:
    """How to parse, where nothing else is asked for: on half of the processors, four at most."""
    return work.ParsePlan(jobs or max(1, min(4, (os.cpu_count() or 2) // 2)), limit_s, export)


def analyse_profiles(run: Path, wanted: Wanted, plan: work.ParsePlan, unfinished: bool, quiet: bool) -> Done:
    """Parse what is wanted and not parsed yet, by the plan, with this environment and the msprof in it.

    Raises: ReadError where no profile is as wanted; MstxkitError where another command works on this run.
    """
    every = profiles.of_run(run, unfinished)
    kept = choose_profiles(every, wanted, lambda profile: (profile.stage, profile.rank, profile.request))
    rows = {profile.path: _make_row(run, profile) for profile in kept}
    if not _to_do(rows, wanted):
        return Done(rows, [], {})
    descriptor = lock.take_lock(run / layout.PROFILES)
    try:
        rows = {profile.path: _make_row(run, profile) for profile in kept}  # as the holder of the lock sees them
        return _parse_all(run, rows, _to_do(rows, wanted), plan, descriptor, quiet)
    finally:
        os.close(descriptor)


def choose_profiles(
    every: list[Item], wanted: Wanted, whose: Callable[[Item], tuple[str, int | None, str]]
) -> list[Item]:
    """Those that are wanted; `whose`: the stage, the rank and the request of one. Raises: ReadError where none is."""
    keys = {stages.canonical_key(name) for name in wanted.stages}
    described = [(item, *whose(item)) for item in every]
    kept = [
        item for item, stage, rank, request in described
        if (not keys or stages.canonical_key(stage) in keys)
        and (not wanted.ranks or rank in wanted.ranks)
        and (wanted.request is None or request.startswith(wanted.request))
    ]  # fmt: skip
    if every and not kept:
        choices = {
            "stages": sorted({stage for _, stage, _, _ in described if stage}),
            "ranks": [str(rank) for rank in sorted({rank for _, _, rank, _ in described if rank is not None})],
            "requests": sorted({request for *_, request in described if request}),
        }
        offer = "; ".join(f"{name}: {', '.join(values) or 'none'}" for name, values in choices.items())
        raise ReadError(f"none of the {len(every)} profiles is as asked for; there are {offer}")
    return kept


def _make_row(run: Path, profile: Profile) -> Row:
    parse = records.read_record(profile.record_file)
    if profile.state != profiles.READY:
        return Row(profile, parse, profile.state)
    parse = parse or records.of_somebody_else(kinds.KINDS[profile.kind], run / profile.path)
    return Row(profile, parse, parse.state if parse and parse.state in _ENDED else NOT_PARSED)


def _to_do(rows: dict[str, Row], wanted: Wanted) -> list[Profile]:
    again = {None: (), "failed": (records.FAILED,), "all": _ENDED}[wanted.again]
    return [row.profile for row in rows.values() if row.state in (NOT_PARSED, *again)]


def _parse_all(
    run: Path, rows: dict[str, Row], todo: list[Profile], plan: work.ParsePlan, descriptor: int, quiet: bool
) -> Done:
    msprof = tools.find_msprof(os.environ)
    plan = plan._replace(environment=tools.make_environment(os.environ, msprof.path), msprof=msprof.path)
    done = Done(rows, [], {}, msprof.path)
    try:
        with ExitStack() as stack:
            # Every signal that asks the command to end becomes an interrupt, so that it tidies up.
            for number in (signal.SIGTERM, signal.SIGHUP):
                stack.callback(signal.signal, number, signal.signal(number, signal.default_int_handler))
            bars = _make_bars(quiet)
            if not bars.disable:  # else rich ends a line that it has not begun
                stack.enter_context(bars)
            ready = _find_parsable(run, todo, plan, msprof, done, bars)
            bars.update(bars.task_ids[0], description="profiles", total=len(ready), count=f"0/{len(ready)}")
            for profile, parse in work.parse_profiles(run, ready, plan, descriptor):
                _move_bars(bars, profile, parse)
                state = NOT_PARSED if parse.state == records.PARSING else parse.state
                rows[profile.path] = Row(profile, parse, state, True)
    except KeyboardInterrupt:
        return done._replace(interrupted=True)
    return done


def _find_parsable(
    run: Path, todo: list[Profile], plan: work.ParsePlan, msprof: tools.Msprof, done: Done, bars: Progress
) -> list[Profile]:
    """The profiles for which all is there; `done` gets what is missing for the others, and versions of what parses."""
    blind = [profile for profile in todo if not msprof.path and kinds.has_device_data(run / profile.path)]
    if blind:
        done.missing.append(f"{_so_many(len(blind))} not parsed: {msprof.problem}")
    loadable = []
    counts = Counter(profile.kind for profile in todo if profile not in blind)
    for kind in filter(counts.get, kinds.KINDS):
        bars.update(bars.task_ids[0], description=f"loading {kind}")
        versions, problem = work.load_parser(kind, plan)
        done.versions.update(versions)
        if not problem:
            loadable.append(kind)
            continue
        advice = "if it is CANN's libraries: `source <CANN>/set_env.sh`, or take the run's folder to a host with CANN"
        if problem.startswith("ModuleNotFoundError"):
            advice = f"install {kind} for {sys.executable}, or run this with the Python that trains"
        reason = f"{kind} cannot be loaded: {problem.splitlines()[0]}; {advice}"
        done.missing.append(f"{_so_many(counts[kind])} not parsed: {reason}")
    return [profile for profile in todo if profile.kind in loadable and profile not in blind]


def _so_many(count: int) -> str:
    return f"{count} profile{' is' if count == 1 else 's are'}"


def _make_bars(quiet: bool) -> Progress:
    """On standard error of a terminal: the first is of all profiles; then one for each that is being parsed."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    label, count = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[count]}")
    columns, is_off = (label, BarColumn(20), count, TimeElapsedColumn()), quiet or not console.is_terminal
    bars = Progress(*columns, console=console, transient=True, refresh_per_second=_A_SECOND, disable=is_off)
    bars.add_task("profiles", total=None, count="")
    return bars


def _move_bars(bars: Progress, profile: Profile, parse: ParseRecord) -> None:
    """A profile began or ended."""
    every = bars.tasks[0]
    if parse.state == records.PARSING:
        rank = "" if profile.rank is None else f" rank {profile.rank}"
        step = "" if profile.step is None else f" step {profile.step}"
        name = "  " + for_terminal(f"{profile.stage}{step}{rank}", _NAME_LIMIT)
        bars.add_task(name, total=None, count="", path=profile.path)
        return
    for own in [task.id for task in bars.tasks if task.fields.get("path") == profile.path]:
        bars.remove_task(own)
    bars.advance(every.id)
    bars.update(every.id, count=f"{every.completed:.0f}/{every.total or 0:.0f}")


def show_parsed(run: Path, done: Done) -> None:
    """The table, then what failed, what is missing, what to do."""
    from rich.text import Text

    console = _show.open_console()
    table = _show.make_table()
    for name in ("rank", "stage", "step", "state", "took", "output", "profile"):
        table.add_column(name, overflow="fold", no_wrap=name in ("rank", "step", "took", "output"))
    for row in done.rows.values():
        rank, step = ("–" if number is None else str(number) for number in (row.profile.rank, row.profile.step))
        state, parse = Text(row.state, _STYLES.get(row.state, "dim")), row.record
        ended = parse if parse and parse.state in _ENDED else None
        took = write_duration(ended.seconds * 1e9) if ended and ended.seconds else ""
        output = write_size(sum(file.bytes for file in ended.outputs)) if ended and ended.outputs else ""
        inner = row.profile.path.partition("/")[2]
        folder = os.path.dirname(inner) if kinds.kind_of(row.profile.path) else inner  # of the session, with all else
        table.add_row(rank, for_rich(row.profile.stage, 40), step, state, took, output, for_rich(folder))
    console.print(table if done.rows else "This run has no profiles: nothing to do.")
    for line in _list_lines(done):
        console.print(for_rich(line))
    # As it is: to be copied from a terminal of any width.
    for line in _opening.describe_opening(run, "", _list_requests(done)):
        typer.echo(line)


def _list_lines(done: Done) -> Iterator[str]:
    rows = list(done.rows.values())
    failed = [row for row in rows if row.state == records.FAILED]
    for row in failed:
        log = row.profile.record_file.with_suffix(".log")
        yield f"failed: {row.profile.path}: {row.record.error if row.record else ''}; see {log}"
    if any(not row.now for row in failed):
        yield "Parse what failed before once more: --again failed"
    notes = [(row, row.record.notes if row.record and row.state == records.PARSED else ()) for row in rows]
    whys = [(row.state, "; ".join(filter(None, [row.profile.reason, *of_parse]))) for row, of_parse in notes]
    remarks = Counter((state, why) for state, why in whys if why)
    yield from (f"{state} ({count}): {why}" for (state, why), count in remarks.items())
    yield from (f"missing: {problem}" for problem in done.missing)
    if done.interrupted:
        yield "interrupted: run the same command again to go on; what is parsed stays"
    if any(row.state == records.PARSED and not row.profile.request for row in rows):
        yield f"Light capture: open the {kinds.OUTPUT} folders one by one with MindStudio Insight."


def _list_requests(done: Done) -> list[str]:
    """Those of which anything is to be seen, in the order of the rows."""
    return list(dict.fromkeys(row.profile.request for row in done.rows.values() if row.profile.request))


def as_json(run: Path, done: Done) -> dict[str, Any]:
    """The same for a program. Paths of profiles are relative to the run."""
    rows = []
    for row, profile, parse in ((row, row.profile, row.record or ParseRecord("")) for row in done.rows.values()):
        rows.append({
            "profile": profile.path, "kind": profile.kind, "stage": profile.stage, "step": profile.step,
            "rank": profile.rank, "request": profile.request, "raw_bytes": profile.bytes, "state": row.state,
            "reason": profile.reason, "now": row.now, "seconds": parse.seconds if row.record else None,
            "output": f"{profile.path}/{kinds.OUTPUT}" if parse.outputs else None,
            "outputs": [output._asdict() for output in parse.outputs], "error": parse.error, "notes": list(parse.notes),
            "versions": parse.versions,
        })  # fmt: skip
    return {
        "run": str(run), "profiles": rows, "missing": done.missing,
        "interrupted": done.interrupted, "tools": {"msprof": done.msprof, **done.versions},
        "open": list(_opening.describe_opening(run, "", _list_requests(done))),
    }  # fmt: skip
