"""What `mstxkit analyse` does and shows: which profiles, with which tools, how far it is, what came out."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Sequence

from .. import stages
from ..errors import ReadError
from ..parsing import kinds, lock, outcome, profiles, record, tools, work
from ..parsing.profiles import Profile
from ..parsing.record import Record
from . import _show
from ._parsing_progress import Shown

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
NOT_PARSED = "not parsed"
_STYLES = {record.PARSED: "green", record.FAILED: "bold red", profiles.RECORDING: "yellow", NOT_PARSED: "yellow"}


class Wanted(NamedTuple):
    """Which profiles. `again`: "failed" or "all" for what has been parsed before."""

    stages: tuple[str, ...]
    ranks: tuple[int, ...]
    request: str | None
    again: str | None


class How(NamedTuple):
    """How to parse: see `work.Plan`."""

    jobs: int
    limit_s: float | None
    export: str


class Row(NamedTuple):
    """One profile and what is known of its parse; `state` is what the table says."""

    profile: Profile
    record: Record | None
    state: str
    now: bool


class Done(NamedTuple):
    """All rows, what is missing, and what there is to parse with."""

    rows: list[Row]
    missing: list[str]
    versions: dict[str, str]
    msprof: str | None
    interrupted: bool

    @property
    def is_wrong(self) -> bool:
        """Did anything fail, or is it missing?"""
        return bool(self.missing) or self.interrupted or any(row.state == record.FAILED for row in self.rows)


def analysed(run: Path, wanted: Wanted, how: How, unfinished: bool, quiet: bool) -> Done:
    """Parse what is wanted and not parsed yet.

    Raises:
        ReadError: no profile is as wanted.
        MstxkitError: another command works on this run.
    """
    chosen = _chosen(profiles.found(run, unfinished), wanted)
    rows = {one.path: _row(run, one) for one in chosen}
    if not _to_do(rows, wanted):
        return Done(list(rows.values()), [], {}, None, False)
    descriptor = lock.take(run / profiles.PROFILES)
    try:
        rows = {one.path: _row(run, one) for one in chosen}  # as the holder of the lock sees them
        return _worked(run, rows, _to_do(rows, wanted), how, descriptor, quiet)
    finally:
        os.close(descriptor)


def _chosen(found: list[Profile], wanted: Wanted) -> list[Profile]:
    keys = {stages.canonical(name) for name in wanted.stages}
    chosen = [
        one for one in found
        if (not keys or stages.canonical(one.stage) in keys)
        and (not wanted.ranks or one.rank in wanted.ranks)
        and (wanted.request is None or one.request == wanted.request)
    ]  # fmt: skip
    if found and not chosen:
        known = {
            "stages": sorted({one.stage for one in found if one.stage}),
            "ranks": [str(rank) for rank in sorted({one.rank for one in found if one.rank is not None})],
            "requests": sorted({one.request for one in found if one.request}),
        }
        told = "; ".join(f"{name}: {', '.join(values) or 'none'}" for name, values in known.items())
        raise ReadError(f"none of the {len(found)} profiles is as asked for; there are {told}")
    return chosen


def _row(run: Path, profile: Profile) -> Row:
    known = record.read(profile.record_file)
    if profile.state != profiles.READY:
        return Row(profile, known, profile.state, False)
    if known is None:
        known = outcome.of_somebody_else(kinds.KINDS[profile.kind], run / profile.path)
    ended = known is not None and known.state in (record.PARSED, record.FAILED)
    return Row(profile, known, known.state if known and ended else NOT_PARSED, False)


def _to_do(rows: dict[str, Row], wanted: Wanted) -> list[Profile]:
    again = {None: (), "failed": (record.FAILED,), "all": (record.FAILED, record.PARSED)}[wanted.again]
    return [row.profile for row in rows.values() if row.state in (NOT_PARSED, *again)]


def _worked(run: Path, rows: dict[str, Row], todo: list[Profile], how: How, descriptor: int, quiet: bool) -> Done:
    msprof = tools.find_msprof(os.environ)
    plan = work.Plan(how.jobs, how.limit_s, how.export, tools.environment(os.environ, msprof.path), msprof.path)
    missing: list[str] = []
    versions: dict[str, str] = {}
    try:
        with _stoppable(), Shown(quiet) as shown:
            can = _what_can_be(run, todo, plan, msprof, missing, versions, shown)
            shown.expect(len(can))
            for profile, known in work.parse(run, can, plan, descriptor):
                shown.tell(profile, known)
                state = NOT_PARSED if known.state == record.PARSING else known.state
                rows[profile.path] = Row(profile, known, state, True)
    except KeyboardInterrupt:
        return Done(list(rows.values()), missing, versions, msprof.path, True)
    return Done(list(rows.values()), missing, versions, msprof.path, False)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Whatever asks the command to end is an interrupt, so that it tidies up."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in _ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _what_can_be(
    run: Path,
    todo: list[Profile],
    plan: work.Plan,
    msprof: tools.Msprof,
    missing: list[str],
    versions: dict[str, str],
    shown: Shown,
) -> list[Profile]:
    """The profiles for which all is there; adds what is missing for the others, and versions of what parses."""
    can = []
    blind = [one for one in todo if kinds.has_device_data(run / one.path)] if msprof.path is None else []
    if blind:
        missing.append(f"{_so_many(len(blind))} not parsed: {msprof.problem}")
    for kind in kinds.KINDS:
        of_kind = [one for one in todo if one.kind == kind and one not in blind]
        if not of_kind:
            continue
        shown.loading(kind)
        loaded = work.load(kind, plan)
        versions.update(loaded.versions)
        if loaded.problem:
            missing.append(_cannot_load(kind, loaded.problem, len(of_kind)))
        else:
            can += of_kind
    return [one for one in todo if one in can]


def _so_many(count: int) -> str:
    return f"{count} profile{' is' if count == 1 else 's are'}"


def _cannot_load(kind: str, problem: str, count: int) -> str:
    import sys

    advice = (
        f"install {kind} for {sys.executable}, or run this with the Python that trains"
        if problem.startswith("ModuleNotFoundError")
        else "if it is CANN's libraries: `source <CANN>/set_env.sh`, or take the run's folder to a host with CANN"
    )
    return f"{_so_many(count)} not parsed: {kind} cannot be loaded: {problem.splitlines()[0]}; {advice}"


def show(done: Done) -> None:
    """The table, then what failed, what is missing, what to do."""
    from rich.table import Table
    from rich.text import Text

    from ..report.escape import for_rich

    console = _show.console()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("rank", "stage", "step", "state", "took", "output", "profile"):
        table.add_column(name, overflow="fold", no_wrap=name in ("rank", "step", "took", "output"))
    for row in done.rows:
        one = row.profile
        table.add_row(
            _or_dash(one.rank), for_rich(one.stage, 40), _or_dash(one.step),
            Text(row.state, _STYLES.get(row.state, "dim")), *_figures(row.record), for_rich(_short(one.path)),
        )  # fmt: skip
    console.print(table if done.rows else "This run has no profiles: nothing to do.")
    for line in _lines(done):
        console.print(for_rich(line))


def _short(path: str) -> str:
    """The folder of the session, which holds everything else."""
    inner = path.partition("/")[2]
    return os.path.dirname(inner) if kinds.kind_of(path) else inner


def _or_dash(number: int | None) -> str:
    return "–" if number is None else str(number)


def _figures(known: Record | None) -> tuple[str, str]:
    from ..report.units import duration, size

    if known is None or known.state not in (record.PARSED, record.FAILED):
        return "", ""
    took = duration(known.seconds * 1e9) if known.seconds else ""
    return took, size(sum(one.bytes for one in known.outputs)) if known.outputs else ""


def _lines(done: Done) -> Iterator[str]:
    yield from _failures(done.rows)
    told = {(row.state, why): 0 for row in done.rows if (why := _remark(row))}
    for row in done.rows:
        if why := _remark(row):
            told[row.state, why] += 1
    yield from (f"{state} ({count}): {why}" for (state, why), count in told.items())
    yield from (f"missing: {one}" for one in done.missing)
    if done.interrupted:
        yield "interrupted: run the same command again to go on; what is parsed stays"
    if any(row.state == record.PARSED for row in done.rows):
        yield f"Open the {kinds.OUTPUT} folders with MindStudio Insight, or give the run to msprof-analyze."


def _failures(rows: Sequence[Row]) -> Iterator[str]:
    failed = [row for row in rows if row.state == record.FAILED]
    for row in failed:
        log = row.profile.record_file.with_suffix(".log")
        yield f"failed: {row.profile.path}: {row.record.error if row.record else ''}; see {log}"
    if any(not row.now for row in failed):
        yield "Parse what failed before once more: --again failed"


def _remark(row: Row) -> str:
    notes = row.record.notes if row.record and row.state == record.PARSED else ()
    return "; ".join(filter(None, [row.profile.reason, *notes]))


def as_json(run: Path, done: Done) -> dict[str, Any]:
    """The same for a program. Paths of profiles are relative to the run."""
    return {
        "run": str(run),
        "profiles": [_fields(row) for row in done.rows],
        "missing": done.missing,
        "interrupted": done.interrupted,
        "tools": {"msprof": done.msprof, **done.versions},
    }


def _fields(row: Row) -> dict[str, Any]:
    one, known = row.profile, row.record
    return {
        "profile": one.path, "kind": one.kind, "stage": one.stage, "step": one.step, "rank": one.rank,
        "request": one.request, "raw_bytes": one.bytes, "state": row.state, "reason": one.reason, "now": row.now,
        "seconds": known.seconds if known else None,
        "output": f"{one.path}/{kinds.OUTPUT}" if known and known.outputs else None,
        "outputs": [output._asdict() for output in known.outputs] if known else [],
        "error": known.error if known else "",
        "notes": list(known.notes) if known else [],
        "versions": known.versions if known else {},
    }  # fmt: skip
