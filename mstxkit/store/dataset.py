"""`compact/`: what sealed files were turned into: Parquet files by day, role and host, and of each batch a manifest.

<run>/compact/<host>.<n>.json                                                  the manifest of batch n of a host
<run>/compact/<kind>/day=<UTC day>/role=<role>/host=<host>/<n>.<k>.parquet     kind: ranges, marks, summaries, days

A manifest is written last: what has none is no part of the dataset, and is removed by who compacts next on that host.
`removed` is written before sealed files are removed: from then on the batch stands for all of them.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple

from ..host import folders
from . import documents, layout
from .documents import Unusable
from .values import list_of, table_of, text_of

FOLDER = "compact"
KINDS = RANGES, MARKS, SUMMARIES, DAYS = "ranges", "marks", "summaries", "days"
SUFFIX, MANIFEST_SUFFIX = ".parquet", ".json"
NO_ROLE = "-"
# Of a manifest: 30 KB a process that lived for hours, and a host has had hundreds of them.
_LIMIT_BYTES = 1 << 28
_NAME = re.compile(r"([0-9A-Za-z_.-]{1,80})\.(\d{1,9})\.json", re.ASCII)
_FILE = re.compile(r"(\d{1,9})\.\d{1,9}\.parquet", re.ASCII)


class CompactedBatch(NamedTuple):
    """What a manifest says of one batch."""

    host: str  # whose sealed files
    number: int  # which batch of that host's, from 0 on
    sources: tuple[str, ...]  # the sealed files that it holds all of
    files: tuple[str, ...]  # its Parquet files, relative to `compact/`
    # Of each process what the metas of its blocks said, by its name: `about`, and `end` once it has ended.
    processes: dict[str, Any]
    removed: bool = False  # are the sealed files gone, or about to be?
    # Of each file, by the first row of a group of rows, the processes that have rows in it.
    holders: Mapping[str, Any] = {}

    def of(self, kind: str) -> list[str]:
        """Its files of a kind."""
        return [file for file in self.files if file.startswith(f"{kind}/")]


def host_of(sealed_name: str) -> str:
    """The host of a sealed file, fit for a folder's name."""
    host = layout.sealed_process(sealed_name).rsplit("-", 2)[0]
    return re.sub(r"[^0-9A-Za-z_.-]", "_", host)[:80].lstrip(".") or "host"


def folder_of(kind: str, day: str, role: str, host: str) -> str:
    """Where files of a kind lie, relative to `compact/`."""
    return f"{kind}/day={day}/role={layout.role_in_names(role) or NO_ROLE}/host={host}"


def day_of(time_ns: int) -> str:
    """The day in UTC."""
    return datetime.fromtimestamp(time_ns // 10**9, timezone.utc).strftime("%Y-%m-%d")


def list_batches(
    run: Path, run_id: str, host: str | None = None, unusable: list[Unusable] | None = None
) -> Iterator[CompactedBatch]:
    """All batches of a run, or of one host, by host and number. `unusable`: what cannot be read, a manifest or the
    folder, or is none of this run, is added here. Raises Unusable: there is one, and no such list.
    """
    try:
        names = documents.list_names(run / FOLDER, MANIFEST_SUFFIX)
    except OSError as exc:
        names, wrong = [], Unusable(run / FOLDER, f"cannot be listed: {exc.strerror}")
        if unusable is None:
            raise wrong from None
        unusable.append(wrong)
    matches = [match for name in names if (match := _NAME.fullmatch(name)) and host in (None, match[1])]
    for match in sorted(matches, key=lambda match: (match[1], int(match[2]))):
        try:
            fields = documents.read_document(run / FOLDER / match[0], run_id, limit_bytes=_LIMIT_BYTES)
        except Unusable as exc:
            if unusable is None:
                raise
            unusable.append(exc)
            continue
        if fields is not None:
            yield _read_batch(match[1], int(match[2]), fields)


def _read_batch(host: str, number: int, fields: dict[str, Any]) -> CompactedBatch:
    sources = tuple(name for name in map(text_of, list_of(fields.get("sources"))) if layout.is_sealed(name))
    files = tuple(name for name in map(text_of, list_of(fields.get("files"))) if _is_own(name, host, number))
    processes = {text_of(name): table_of(about) for name, about in table_of(fields.get("processes")).items()}
    is_removed, holders = fields.get("removed") is True, table_of(fields.get("holders"))
    return CompactedBatch(host, number, sources, files, processes, is_removed, holders)


def _is_own(name: str, host: str, number: int) -> bool:
    """Is it the name of a file of this batch, and no way out of the folder?"""
    parts = name.split("/")
    match = _FILE.fullmatch(parts[-1])
    starts = ("", "day=", "role=", f"host={host}")
    is_below = len(parts) == 5 and parts[0] in KINDS and all(map(str.startswith, parts, starts))
    return is_below and not {"", ".", ".."}.intersection(parts) and match is not None and int(match[1]) == number


def write_manifest(run: Path, run_id: str, batch: CompactedBatch) -> None:
    """Write a manifest, or replace it; on the disk: sealed files are removed for what it says.
    Raises OSError, MstxkitError: it cannot be written.
    """
    folders.make_folder(run / FOLDER)
    file = run / FOLDER / f"{batch.host}.{batch.number}{MANIFEST_SUFFIX}"
    documents.replace_file(file, documents.encode_document(run_id, batch._asdict()), True)


def drafts_of(run: Path, host: str) -> Iterator[Path]:
    """What a writer of this host's files has left that was killed."""
    return (run / FOLDER).glob(f"*/day=*/role=*/host={host}/.*{SUFFIX}.*")


def files_of(run: Path, host: str) -> Iterator[tuple[int, Path]]:
    """Every Parquet file of a host, with the number of its batch, also of batches that have no manifest."""
    for file in sorted((run / FOLDER).glob(f"*/day=*/role=*/host={host}/*{SUFFIX}")):
        if match := _FILE.fullmatch(file.name):
            yield int(match[1]), file
