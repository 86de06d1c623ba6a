"""Turns sealed files into Parquet where they lie: ranges, marks and summaries by day, role and host, batch by batch.

A batch is done when its manifest is there. Whatever ends this process before that leaves files without one, which the
next one removes; nothing is there twice. Only what is sealed is touched, and of a process that still runs not the
newest file. Memory: one batch, about 40 bytes a range for each byte that it is sealed in.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Callable, Collection, Iterator, NamedTuple

import polars as pl

from ...errors import ReadError
from ...host import folders
from ...store import dataset, documents, layout, parquet, run_file
from ...store.dataset import DAYS, MARKS, RANGES, SUMMARIES, CompactedBatch
from ...store.process_pointer import announced_by
from ...store.values import group_by
from .. import frames, places
from ..folder import run_id
from ..parquet import in_memory
from ..processes import ENDINGS
from ..run_files import RunFiles
from . import summaries

_BATCH_BYTES, _BATCH_FILES = 48 << 20, 4096
# Whoever reads a part of a run leaves out whole groups of rows, by what each says of its steps and times.
_ROWS_A_FILE, _ROWS_A_GROUP = 1 << 20, 1 << 16
_WAIT_S = 5.0
Progress = Callable[[float], object]


class Compacted(NamedTuple):
    """What was done: so many batches, sealed files and their bytes, ranges and summaries, bytes of Parquet; files that
    were removed; and files that were left as they are, for something in them cannot be read.
    """

    batches: int = 0
    files: int = 0
    sealed_bytes: int = 0
    ranges: int = 0
    summaries: int = 0
    bytes: int = 0
    removed: int = 0
    left: int = 0

    def plus(self, other: Compacted) -> Compacted:
        """Both together."""
        return Compacted(*map(sum, zip(self, other)))


def compact_files(
    run: Path, hosts: Collection[str] | None = None, remove: bool = False, progress: Progress = lambda share: None,
    wait_s: float = _WAIT_S,
) -> Compacted:  # fmt: skip
    """Compact all sealed files that are within reach and not compacted yet.

    Args:
        run: The run's folder, resolved.
        hosts: Only files of these hosts; None: all.
        remove: Remove sealed files once their batch is whole on disk.
        progress: Called with the share of the files that is done more.
        wait_s: So long another process that is at files of the same host is waited for.

    Raises:
        ReadError: the run does not say its id: once it does, what was compacted under none would be nobody's.
        OSError, MstxkitError: it cannot be done, or another process is at it.
    """
    own_id = run_id(str(run), [])
    if not own_id:
        raise ReadError(run_file.why_none(run))
    folders.make_folder(run)  # its owner could not read what another user compacts, and removes
    folders.make_folder(run / dataset.FOLDER)
    todo = {host: names for host, names in _list_todo(run, own_id).items() if hosts is None or host in hosts}
    count, done = sum(map(len, todo.values())), Compacted()
    for host, names in todo.items():
        with _work_alone(run, host, wait_s):
            for batch in _split_batches(run, own_id, _not_done(run, own_id, host, names)):
                done = done.plus(_compact_batch(run, own_id, host, batch))
                progress(len(batch) / count)
    if not remove:
        return done
    there = frozenset(places.SealedFolder(str(run), own_id).names(layout.SEALED_SUFFIX))
    compacted_on = {batch.host for batch in _known_batches(run, own_id)}
    for host in sorted(compacted_on if hosts is None else compacted_on.intersection(hosts)):
        with _work_alone(run, host, wait_s):
            done = done.plus(Compacted(removed=_remove_sealed(run, own_id, host, there)))
    return done


def _work_alone(run: Path, host: str, wait_s: float) -> AbstractContextManager[None]:
    """Of two that are at files of one host the other one waits."""
    return documents.hold_lock(run / dataset.FOLDER / f"{host}.lock", wait_s)


def _known_batches(run: Path, own_id: str, host: str | None = None) -> Iterator[CompactedBatch]:
    """The batches whose manifests can be read."""
    return dataset.list_batches(run, own_id, host, unusable=[])


def _not_done(run: Path, own_id: str, host: str, names: list[str]) -> list[str]:
    """Those that nobody has done since they were listed. What somebody has left half done goes first: all that no
    manifest names, so that each must be readable now.
    """
    done = list(dataset.list_batches(run, own_id, host))
    numbers = {batch.number for batch in done}
    without_manifest = (file for number, file in dataset.files_of(run, host) if number not in numbers)
    for file in (*without_manifest, *dataset.drafts_of(run, host)):
        file.unlink(missing_ok=True)
    have = {source for batch in done for source in batch.sources}
    return [name for name in names if name not in have]


def hosts_of(run: Path) -> list[str]:
    """Of which hosts there are sealed files, or were."""
    own_id = run_id(str(run), [])
    sealed = places.SealedFolder(str(run), own_id).names(layout.SEALED_SUFFIX)
    return sorted({*map(dataset.host_of, sealed), *(batch.host for batch in _known_batches(run, own_id))})


def _list_todo(run: Path, own_id: str) -> dict[str, list[str]]:
    """By host, the sealed files that no batch has and nobody writes to any more."""
    have = {source for batch in _known_batches(run, own_id) for source in batch.sources}
    sealed = places.SealedFolder(str(run), own_id)
    names = [name for name in sealed.names(layout.SEALED_SUFFIX) if layout.is_sealed(name)]
    # Who has something live still, whatever its pointer says, may seal more, or somebody for it. Who adopts a process
    # renames its pointer: the second listing has it under its new name.
    running = {announced_by(name) for _ in range(2) for name in documents.list_names(run / layout.LIVE)}
    being_written = {name for name in layout.newest_of_each(names) if layout.sealed_process(name) in running}
    todo = layout.in_order(name for name in names if name not in have and name not in being_written)
    return group_by(todo, dataset.host_of)


def _split_batches(run: Path, own_id: str, names: list[str]) -> Iterator[list[str]]:
    """In batches that fit memory; all of a process stays together as far as that goes."""
    sealed = places.SealedFolder(str(run), own_id)
    batch: list[str] = []
    held = 0
    for name in names:
        bytes_of_it = _size_of(sealed, name)
        if batch and (held + bytes_of_it > _BATCH_BYTES or len(batch) >= _BATCH_FILES):
            yield batch
            batch, held = [], 0
        batch.append(name)
        held += bytes_of_it
    if batch:
        yield batch


def _size_of(sealed: places.SealedFolder, name: str) -> int:
    try:
        return os.stat(sealed.path_of(name)).st_size
    except OSError:
        return 0


def _compact_batch(run: Path, own_id: str, host: str, names: list[str]) -> Compacted:
    number = 1 + max((batch.number for batch in dataset.list_batches(run, own_id, host)), default=-1)
    part = RunFiles(str(run), sealed_files=frozenset(names))
    writer = _Writer(run, host, number)
    try:
        for piece in part.pieces(_ROWS_A_FILE, frames.ARCHIVE_NEED):
            ranges, marks = (_name_processes(part, rows) for rows in part.finisher().archived_rows(piece))
            writer.write(RANGES, ranges, "start_ns")
            writer.write(MARKS, marks, "time_ns")
        summed = _name_processes(part, summaries.of_stage_rows(part.decoded_stage_rows("busy_ns")))
        writer.write(SUMMARIES, summed, "start_ns")
        writer.write(DAYS, summaries.of_days(summed), "start_ns")
        # Of what could not be read nothing changes: these files stay as they are, and so does what is said of them.
        damaged = frozenset(names) & {os.path.basename(loss.path) for loss in part.damage}
        if damaged:
            writer.forget()
            rest = [name for name in names if name not in damaged]
            done = _compact_batch(run, own_id, host, rest) if rest else Compacted()
            return done.plus(Compacted(left=len(damaged)))
        about, files = _about_all(part), tuple(writer.files)
        dataset.write_manifest(
            run, own_id, CompactedBatch(host, number, tuple(names), files, about, holders=writer.holders)
        )
    except BaseException:
        writer.forget()
        raise
    sealed = places.SealedFolder(str(run), own_id)
    size = sum(_size_of(sealed, name) for name in names)
    return Compacted(1, len(names), size, writer.rows[RANGES], writer.rows[SUMMARIES], writer.bytes)


def _name_processes(part: RunFiles, rows: pl.DataFrame) -> pl.DataFrame:
    """With the name of each process in place of its row: rows are of this batch alone. And with its host."""
    names = pl.Series([process.name for process in part.processes], dtype=pl.String)
    hosts = pl.Series([process.host for process in part.processes], dtype=pl.String)
    at = rows["process"]
    return rows.with_columns(process=names.gather(at), host=hosts.gather(at))


def _about_all(part: RunFiles) -> dict[str, Any]:
    """Of each process, by its name, what its blocks said, in their form, its tracks, if any range is open, and its wall
    clock.
    """
    part.learn_tracks()
    has_open, words, every = set(part.open_ranges()["process"]), {state: word for word, state in ENDINGS.items()}, {}
    for of in part.processes:
        clock = {"kind": of.clock_kind, "ticks_per_ns": of.ticks_per_ns, "anchors": sorted(of.anchors)}
        end = {
            "ended": words.get(of.state, "exit"), "error": of.error, "status": of.exit_status, "gone_ns": of.gone_ns,
            "by": of.sealed_by, "watched": of.was_watched, "fatal": of.fatal, "signal": of.signal,
        }  # fmt: skip
        about = {"identity": of.identity, "counters": of.counters, "clock": clock}
        every[of.name] = {
            "about": {**about, "heartbeat_ns": of.heartbeat_ns},
            **({"end": {key: value for key, value in end.items() if value not in (None, "")}} if of.ended else {}),
            "has_open": of.index in has_open, "offset_ns": of.offset_ns,
            "tracks": [[track, *text] for track, text in of.texts.tracks.items()],
        }  # fmt: skip
    return every


class _Writer:
    """Writes the Parquet files of one batch, whole ones only."""

    def __init__(self, run: Path, host: str, number: int) -> None:
        self._base, self._host, self._number = run / dataset.FOLDER, host, number
        self.files: list[str] = []
        self.holders: dict[str, dict[int, list[str]]] = {}
        self.rows = dict.fromkeys(dataset.KINDS, 0)
        self.bytes = 0

    def write(self, kind: str, rows: pl.DataFrame, time_column: str) -> None:
        """Rows of a kind, each where its day and role say; `role` and `process` are columns of theirs."""
        placed = rows.with_columns(_day=pl.col(time_column) // summaries.DAY_NS, _role=pl.col("role").cast(pl.String))
        for of_place in placed.partition_by("_day", "_role", maintain_order=True):
            day, role = of_place["_day"][0], of_place["_role"][0] or ""
            folder = dataset.folder_of(kind, dataset.day_of((day or 0) * summaries.DAY_NS), role, self._host)
            name = f"{folder}/{self._number}.{len(self.files)}{dataset.SUFFIX}"
            file = self._base / name
            for inner in reversed([file.parent, *list(file.parent.parents)[: folder.count("/")]]):
                folders.make_folder(inner)
            texts = of_place.drop("_day", "_role").with_columns(pl.col(pl.Categorical).cast(pl.String))
            content = in_memory(texts, compression="zstd", statistics=True, row_group_size=_ROWS_A_GROUP)
            groups = [
                (group.first, texts["process"][group.first :][: group.rows]) for group in parquet.look_at_file(content)
            ]
            self.holders[name] = {first: processes.unique().to_list() for first, processes in groups}
            self.files.append(name)
            documents.replace_file(file, content.getvalue(), is_lasting=True)
            self.bytes += file.stat().st_size
            self.rows[kind] += of_place.height

    def forget(self) -> None:
        """Remove what is there so far."""
        for file in (self._base / name for name in self.files):
            file.unlink(missing_ok=True)


def _remove_sealed(run: Path, own_id: str, host: str, there: Collection[str]) -> int:
    """Remove the sealed files of every batch; each batch says so before. Only in the run, and here on own disks."""
    sealed, count = places.SealedFolder(str(run), own_id), 0
    for batch in _known_batches(run, own_id, host):
        names = [name for name in batch.sources if name in there]
        if not batch.removed:
            dataset.write_manifest(run, own_id, batch._replace(removed=True))
        for file in (Path(sealed.path_of(name)) for name in names):
            count += file.exists()  # who waited for another one counts nothing of what that has removed
            file.unlink(missing_ok=True)
    return count
