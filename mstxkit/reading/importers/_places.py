"""Which files a path stands for, who reads each, and whose they are as far as names tell."""

from __future__ import annotations

import codecs
import gzip
import os
import re
import stat
import zlib
from pathlib import Path
from typing import Iterable, Iterator, NamedTuple

from ...errors import FormatError
from ...parsing import kinds
from ...store import documents
from ...store.values import small_number
from ..folder import Damage, reason_of
from . import HEAD_BYTES, Importer, recognise_file

DEEPEST, FILES_AT_MOST = 8, 100_000
_SUFFIXES = (".db", ".json", ".json.gz", ".csv", ".jsonl", ".pickle", ".pkl", ".sqlite", ".nsys-rep")
# What other tools make of profiles, and files that hold none of what is looked for.
_OTHERS = re.compile(
    r"analysis\.db|cluster_analysis\.db|.*mindstudio_insight_data\.db|profiler_(info|metadata).*\.json"
    r"|communication_matrix\.json|session\.json|analysis\.json"
)
_INFO = re.compile(r"profiler_info_(\d{1,9})\.json")
_IN_NAME = re.compile(r"(?:^|(?<!lora)[_.\-])rank[_\-]?(\d{1,9})(?!\d)")  # `lora_rank_16` is the size of an adapter
_DATABASE = re.compile(r"(?:ascend_pytorch|ascend_mindspore)_profiler_(\d{1,9})\.db|msmonitor_\d+_\d+_(\d{1,9})\.db")


class FileToImport(NamedTuple):
    """A file to read, and what reads it.

    Args:
        rank, host, pid: Whose it is, by who recorded it; None and "" where that does not say.
        companion: `communication.json` beside it, which tells transfer from waiting.
        in_name: A rank in its name or a folder's, which counts where the file itself says none.
        size, changed_ns: As it was before it is read: what is written meanwhile makes it another one.
    """

    path: Path
    importer: Importer
    rank: int | None
    host: str
    pid: int | None
    companion: Path | None = None
    in_name: int | None = None
    size: int = 0
    changed_ns: int = 0


def find_files(paths: Iterable[Path], damage: list[Damage]) -> list[FileToImport]:
    """All files that these paths stand for; a folder stands for what is below it, links not followed.
    `damage`: what a path that was named has not, and what below it cannot be read, is added here.
    """
    every: dict[Path, FileToImport] = {}
    for path in paths:
        try:
            named = _list_named(path, damage)
        except (OSError, FormatError) as exc:
            damage.append(Damage.because(str(path), exc))
            continue
        every.update((source.path.resolve(), source) for source in named)
    return list(every.values())


def _list_named(path: Path, damage: list[Damage]) -> list[FileToImport]:
    if not stat.S_ISDIR(path.stat().st_mode):
        beside, source = path.with_name("communication.json"), _look_at(path)
        if source is None:
            raise FormatError("is of no format that can be imported")
        has_more = source.importer.preference and beside.is_file() and beside.name != path.name
        return [source._replace(companion=beside if has_more else None)]
    before = len(damage)
    inside = [source for folder, names in _walk_folders(path, damage) for source in _of_folder(folder, names, damage)]
    if not inside and len(damage) == before:
        raise FormatError("holds nothing to import; raw profiles are parsed first: mstxkit profiles RUN --analyse")
    return inside


def _walk_folders(top: Path, damage: list[Damage]) -> Iterator[tuple[Path, list[str]]]:
    seen = 0
    for place, inner, names in os.walk(top, onerror=lambda exc: damage.append(Damage.because(exc.filename, exc))):
        folder = Path(place)
        seen += len(names)
        if kinds.OUTPUT in inner:  # what is beside it is what that was made of
            inner[:], names = [kinds.OUTPUT], []
        inner.sort()
        if len(folder.relative_to(top).parts) >= DEEPEST or seen > FILES_AT_MOST:
            inner[:] = []
        yield folder, sorted(names)


def _of_folder(folder: Path, names: list[str], damage: list[Damage]) -> Iterator[FileToImport]:
    """Files that stand alone, and of those that tell the same the best for each rank."""
    best: dict[int | None, list[FileToImport]] = {}
    for name in names:
        path = folder / name
        if not name.endswith(_SUFFIXES) or _OTHERS.fullmatch(name) or path.is_symlink():
            continue
        try:
            source = _look_at(path)
        except (OSError, FormatError) as exc:
            Damage.because(str(path), exc).note_in(damage)
            continue
        if source is None:
            continue
        if source.importer.preference:
            best.setdefault(source.in_name if source.rank is None else source.rank, []).append(source)
        else:
            yield source
    for same in best.values():
        same.sort(key=lambda source: source.importer.preference)
        companion = next((source.path for source in same[1:] if source.path.name == "communication.json"), None)
        yield same[0]._replace(companion=companion)
        yield from (other for other in same[1:] if other.importer == same[0].importer)


def _look_at(path: Path) -> FileToImport | None:
    """None: no format knows it. Raises FormatError for what is no regular file, which nobody waits for."""
    with documents.close_after(documents.open_regular(path.resolve())) as descriptor:
        head = documents.read_part(descriptor, 0, HEAD_BYTES)
    if head.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(path) as file:
                head = file.read(HEAD_BYTES)
        except (OSError, EOFError, zlib.error) as exc:
            raise FormatError(f"cannot be unpacked: {reason_of(exc)}") from None
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FormatError("is UTF-16: save it as UTF-8 (iconv -f UTF-16 -t UTF-8)")
    importer = recognise_file(path, head[len(codecs.BOM_UTF8) :] if head.startswith(codecs.BOM_UTF8) else head)
    return None if importer is None else _make_source(path, importer)


def _make_source(path: Path, importer: Importer) -> FileToImport:
    recorder = next((kinds.recorder_of(part) for part in reversed(path.parts) if kinds.recorder_of(part)), {})
    host, pid, status = str(recorder.get("host", "")), small_number(recorder.get("pid")), path.stat()
    matches = map(_IN_NAME.search, reversed(path.absolute().parts[-6:]))
    in_name = next((int(match[1]) for match in matches if match), None)
    rank = None
    if match := _DATABASE.fullmatch(path.name):
        rank = int(match[1] or match[2])
    elif path.parent.name == kinds.OUTPUT:
        infos = map(_INFO.fullmatch, documents.names_in(path.parent.parent, ".json"))
        rank = next((int(match[1]) for match in infos if match), None)
    return FileToImport(path, importer, rank, host, pid, None, in_name, status.st_size, status.st_mtime_ns)
