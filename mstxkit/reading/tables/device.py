"""`Run.device()`: what the device of each rank did in each stage of a step, from what was imported.

Profiles of the run itself, its escalations' and its light ones, are joined without being asked for: when the table is
first asked for, and kept then where the run can be written.
"""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl

from ...store import layout
from ...store.session_file import read_sessions
from ...store.values import small_number, text_of, whole_number
from ..folder import Damage
from ..importers._kept import Identity
from ..importers._places import FileToImport
from ..processes import rank_of
from ..run_files import RunFiles

# Of a larger profile a line in `damage` says how to import it: a table should not take minutes.
BYTES_AT_MOST, BYTES_OF_ALL = 1 << 28, 1 << 30


def table(files: RunFiles) -> pl.DataFrame:
    """One row a rank, step, stage and file, in this order; of a run's filters ranks, steps and stages hold.

    `rank, step, stage, role, host, count, stage_ns, computing_ns, communicating_ns, transfer_ns, waiting_ns,
    overlapped_ns, free_ns, spans_ns, error_ns, clock, source, file, known, transfer_from_ns, transfer_to_ns,
    waiting_from_ns, waiting_to_ns`. What a file does not tell is null.

    - `stage_ns` is the part of the stage that was recorded, of `count` occurrences; computing, communicating and free
      add up to it. What is both counts as computing, and in `overlapped_ns` too.
    - `transfer_ns` and `waiting_ns` are parts of `communicating_ns`. `known` says how: `told` by the file; `bounded`,
      then both are null, and lie from `…_from_ns` to `…_to_ns`; `guessed`: an older version kept them, and it guessed.
    - `spans_ns` is how much of the stage had spans of somebody else's tracing.
    - Each number is right to `error_ns`. `clock` says how clocks were compared: `ranges`, `few ranges`, or `wall
      clock`, which is taken to be right to 10 ms.
    """
    from ..importers import _kept

    folder = Path(files.path)
    more = _of_own_profiles(files, folder)
    rows = pl.concat([_kept.read_table(folder, files.id, files.damage), *more])
    return files.chosen.of_table(rows).sort("rank", "step", "stage", "source", "file", maintain_order=True)


def _of_own_profiles(files: RunFiles, folder: Path) -> list[pl.DataFrame]:
    """Rows of profiles that could not be kept; those that could are with the others from now on."""
    from ..importers import _importing, _join

    sources = [source for source, _ in own_profiles(files, folder)]
    if not sources:
        return []
    asked = {source.rank for source in sources}
    ranks = frozenset(rank for process in files.processes if (rank := rank_of(process)) in asked and rank is not None)
    whole = files.part(ranks=ranks if ranks and None not in asked else None)
    rest = []
    for source, imported in zip(sources, _importing.import_all(whole, sources, lambda _: None)):
        for part in imported.damage:
            part.note_in(files.damage)
        if imported.problem not in ("", _join.NOTHING_IN_IT) and not imported.damage:
            Damage.of(imported.file, imported.problem).note_in(files.damage)
        if _importing.try_to_keep(folder, files.id, source, imported):
            rows = [{**row, "file": os.path.relpath(imported.file, files.path)} for row in imported.rows]
            rest.append(pl.DataFrame(rows, schema=_join.DEVICE_SCHEMA))
    return rest


def own_profiles(files: RunFiles, folder: Path, is_limited: bool = True) -> list[tuple[FileToImport, Identity]]:
    """Parsed profiles of the run that were not imported yet, or that have changed since."""
    from ..importers import _kept, _places

    top, damage = folder / layout.PROFILES, list[Damage]()
    if not top.is_dir() or top.is_symlink():
        return []
    owners = _find_owners(files.id, folder)
    heads = (document.get for _, document in _kept.read_heads(folder, files.id, []))
    kept = {(text_of(get("file")), *map(whole_number, (get("size"), get("changed_ns")))) for get in heads}
    new, size = [], 0
    for source in _places.find_files([top], damage):
        identity = _kept.Identity.of(source, folder)
        if identity in kept:
            continue
        size += identity.size
        if is_limited and (identity.size > BYTES_AT_MOST or size > BYTES_OF_ALL):
            why = f"is too large to be joined in passing: mstxkit import --run {files.path}"
            Damage.of(os.fspath(source.path), why).note_in(files.damage)
            size -= identity.size
            continue
        place = next((path for path in (source.path, *source.path.parents) if path in owners), source.path)
        rank, host, pid = owners.get(place, (source.rank, "", None))
        new.append((source._replace(rank=rank, host=host or source.host, pid=pid or source.pid), identity))
    return new


def _find_owners(run_id: str, folder: Path) -> dict[Path, tuple[int | None, str, int | None]]:
    """Rank, host and pid of what each session recorded, by where that lies."""
    owners = {}
    for session in read_sessions(folder, run_id):
        output, get = text_of(session.document.get("output")), session.document.get
        if output:
            owner = (small_number(get("rank")), text_of(get("host")), small_number(get("pid")))
            owners[folder / session.place / Path(output).name] = owner
    return owners
