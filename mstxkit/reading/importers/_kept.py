"""What was imported, kept in the run: `imports/<name>.parquet` with the rows, and `imports/<name>.json` about them.

The name is made of the file's own and of where it lies, so that the same file imported again replaces what was there.
Rows are written first and the document last: who reads goes by the document, and sees both or neither. It holds a
digest of the rows: none is decoded that is not as it was written.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Sequence

import polars as pl

from ...errors import FormatError
from ...host import folders
from ...store import documents, layout
from ...store.documents import FORMAT, Unusable
from ...store.values import list_of, table_of, text_of, whole_number
from .. import parquet
from ..folder import Damage, Folder, reason_of
from ._join import DEVICE_SCHEMA
from ._places import FileToImport

_SUFFIX, _HEAD = ".parquet", ".json"
_BYTES_AT_MOST, _IMPORTS_AT_MOST, ROWS_AT_MOST = 1 << 28, 20_000, 5_000_000
_LATEST_NS, _DAMAGE_AT_MOST = 1 << 62, 100


class Identity(NamedTuple):
    """A file that was imported: where it lies, below the run where it does, and by what a change is seen."""

    file: str
    size: int
    changed_ns: int

    @classmethod
    def of(cls, source: FileToImport, run: Path) -> Identity:
        """As it was when it was found."""
        real, top = os.path.realpath(source.path), os.path.realpath(run)
        inside = real.startswith(top + os.sep)
        return cls(os.path.relpath(real, top) if inside else real, source.size, source.changed_ns)

    @property
    def name(self) -> str:
        """Of its files in `imports/`."""
        digest = hashlib.blake2b(self.file.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        return f"{layout.stage_in_names(Path(self.file).name)[:60]}-{digest}"


def keep_rows(
    run: Path, run_id: str, identity: Identity, rows: Sequence[dict[str, Any]], about: dict[str, Any]
) -> None:
    """Keep the rows of one file, in place of what was kept of it before.
    Raises OSError, CaptureError: the run cannot be written.
    """
    folder = run / layout.IMPORTS
    folders.make_folder(folder)
    content = parquet.in_memory(pl.DataFrame(rows, schema=DEVICE_SCHEMA), compression="zstd").getvalue()
    fields = {**identity._asdict(), "rows": len(rows), **about, "digest": _digest_of(content)}
    head = {"format": FORMAT, "run": run_id, **fields, "time_ns": time.time_ns()}
    documents.replace_file(folder / (identity.name + _SUFFIX), content)
    text = json.dumps(head, indent=1, default=str).encode("utf-8", "backslashreplace")
    documents.replace_file(folder / (identity.name + _HEAD), text)


def is_there(run: Path, identity: Identity) -> bool:
    """Is anything kept of this file?"""
    return os.path.lexists(run / layout.IMPORTS / (identity.name + _HEAD))


def read_heads(run: Path, run_id: str, damage: list[Damage]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, document) of each import of this run; what is none is added to `damage`."""
    folder = run / layout.IMPORTS
    for name in documents.names_in(folder, _HEAD)[:_IMPORTS_AT_MOST]:
        try:
            document = documents.read_document(folder / name, run_id)
        except Unusable as exc:
            Damage.of(exc.path, exc.reason).note_in(damage)
            continue
        if document is not None:
            yield name[: -len(_HEAD)], document


def read_table(run: Path, run_id: str, damage: list[Damage]) -> pl.DataFrame:
    """All rows that are kept, of `DEVICE_SCHEMA`; what cannot be read is added to `damage`."""
    folder, parts, count = Folder(str(run / layout.IMPORTS)), [], 0
    for name, document in read_heads(run, run_id, damage):
        for loss in map(table_of, list_of(document.get("damage"))[:_DAMAGE_AT_MOST]):
            path, reason = text_of(loss.get("path")), text_of(loss.get("reason"))
            Damage(path, whole_number(loss.get("offset")), whole_number(loss.get("size")), reason).note_in(damage)
        try:
            part = _read_rows(folder, name + _SUFFIX, text_of(document.get("digest")))
        except (OSError, FormatError) as exc:
            Damage.because(folder.path_of(name + _SUFFIX), exc).note_in(damage)
            continue
        count += part.height
        if count > ROWS_AT_MOST:
            Damage.of(folder.path, f"holds more than {ROWS_AT_MOST} rows: the rest is left out").note_in(damage)
            break
        parts.append(part)
    return pl.concat(parts) if parts else pl.DataFrame(schema=DEVICE_SCHEMA)


def _digest_of(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _read_rows(folder: Folder, name: str, digest: str) -> pl.DataFrame:
    content = folder.read(name, size=_BYTES_AT_MOST + 1)
    if len(content) > _BYTES_AT_MOST:
        raise FormatError(f"is larger than {_BYTES_AT_MOST} bytes")
    if _digest_of(content) != digest:
        raise FormatError("is not as it was written: import the file again")
    try:
        part = parquet.read_file(io.BytesIO(content), ROWS_AT_MOST)
        if "known" not in part.columns:  # of a version that compared ranks and took what it found for told
            part = part.with_columns(pl.lit(None).alias(name) for name in DEVICE_SCHEMA if name not in part.columns)
            part = part.with_columns(known=pl.when(pl.col("transfer_ns").is_not_null()).then(pl.lit("guessed")))
        part = part.select(pl.col(name).cast(kind) for name, kind in DEVICE_SCHEMA.items())
    except pl.exceptions.PolarsError as exc:
        raise FormatError(f"is no table of an import: {reason_of(exc)[:200]}") from None
    numbers = [name for name, kind in DEVICE_SCHEMA.items() if kind == pl.Int64]
    sane = pl.all_horizontal(pl.col(name).is_null() | pl.col(name).is_between(0, _LATEST_NS) for name in numbers)
    return part.filter(sane)
