"""What the processes of this host have handed over since the last time, made into batches.

It reads shared memory only. What a process left that is gone is read once more, and cleared away.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ..host import identity, parts
from ..host.listing import ListedFolder
from ..store import batches, documents, handed_over, layout
from ..store.batches import HandingProcess
from ..store.documents import Unusable
from ..store.handed_over import CPU, END, OF_COLLECTIVES, STAGES, WAITS, WHO, HandedOver
from ..store.values import list_of, small_number, table_of, text_of, whole_number

_POSITION, _POSITION_OF_RINGS = "position", "position_of_rings"
_ROWS_AT_MOST = batches.BODY_AT_MOST // 2
_ANNOUNCED_AT_MOST = 64  # in one batch: their stages may be long texts


class Handed(NamedTuple):
    """What is new of one process."""

    process: HandingProcess  # who it is
    is_changed: bool  # was it another one, or did it say something else of itself, before?
    rows: bytes  # whole rows
    missed: int  # rows that nobody has read
    has_ended: bool  # nothing comes of it any more
    entries: bytes = b""  # whole rows of its entries into collectives
    groups: Mapping[str, Any] = {}  # of these, as its document says them, where who reads may not know them
    cpu: Sequence[Any] = ()  # `handed_over.CPU`; [] where it does not say


class Gathering:
    """The rings of one host. One thread at a time.
    `folder`: of the live files of this host.
    `has_steps`: has anything that was handed over been in a step?
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._listed, self._host = folder, ListedFolder(folder), identity.name_host()
        self._rings: dict[str, _Ring] = {}
        self._seen: tuple[frozenset[str], list[str]] = frozenset(), []
        self._next_number = 0
        self._before: Mapping[str, Any] | None = None
        self.has_steps = False

    def gather(self) -> list[Handed]:
        """What is new of each process that has anything new."""
        try:
            files = self._listed.names()
        except FileNotFoundError:
            return []
        if files is not self._seen[0]:  # of these this host's keeper passes on what its own processes have
            self._seen = files, layout.of_keeper(files, layout.HANDED_OVER_SUFFIX, self._host)
        names = self._seen[1]
        for name in names:
            if name not in self._rings and len(self._rings) < batches.PROCESSES_AT_MOST:
                # What an earlier keeper has left of this process.
                if self._before is None:
                    self._before = documents.read_json(self._folder / layout.READ_SO_FAR) or {}
                self._rings[name] = _Ring(self._folder, name, self._free_number(), table_of(self._before.get(name)))
        handed = [new for ring in self._rings.values() if (new := ring.read(files)) is not None]
        for name in [name for name, ring in self._rings.items() if ring.is_over or name not in names]:
            self._rings.pop(name).remove()
        self.has_steps = self.has_steps or any(handed_over.has_steps(new.rows) for new in handed)
        return handed

    def _free_number(self) -> int:
        """The next one that no other has: they come round, and some processes outlive thousands."""
        taken = {ring.number for ring in self._rings.values()}
        while self._next_number % batches.PROCESSES_AT_MOST in taken:
            self._next_number += 1
        self._next_number += 1
        return (self._next_number - 1) % batches.PROCESSES_AT_MOST

    def save(self) -> None:
        """Leave for the next keeper what was passed on, and of whom. Raises OSError: it cannot be left; the next one
        passes on again what the rings hold.
        """
        content = json.dumps({name: ring.as_json() for name, ring in self._rings.items()}).encode()
        documents.replace_file(self._folder / layout.READ_SO_FAR, content)

    def announce_all(self) -> None:
        """Say of every process again who it is, the next time: who reads may have missed it."""
        for ring in self._rings.values():
            ring.announced = None

    def processes(self) -> list[HandingProcess]:
        """Those that have handed over anything and live."""
        return [ring.announced for ring in self._rings.values() if ring.announced is not None]


class _Ring:
    """One process's."""

    def __init__(self, folder: Path, name: str, number: int, before: Mapping[str, Any]) -> None:
        position = whole_number(before.get(_POSITION))
        self._handed = HandedOver(folder / f"{name}{layout.HANDED_OVER_SUFFIX}", position)
        position = whole_number(before.get(_POSITION_OF_RINGS))
        self._entered = HandedOver(folder / f"{name}{layout.RINGS_SUFFIX}", position, OF_COLLECTIVES)
        self._name, self.number = name, number
        self.announced: HandingProcess | None = None
        self._groups: Mapping[str, Any] = {}
        self.is_over = False

    def read(self, files: frozenset[str]) -> Handed | None:
        """What is new; None where nothing is. *Cost*: a system call a ring where nothing was handed over since.
        `files`: what there is in its folder.
        """
        is_gone = f"{self._name}{layout.LIVE_SUFFIX}" not in files
        has_entered = f"{self._name}{layout.RINGS_SUFFIX}" in files
        is_same = self._handed.is_unchanged and (not has_entered or self._entered.is_unchanged)
        if is_same and not is_gone and self.announced is not None:
            return None
        try:
            rows, missed, document = self._handed.read_new()
        except Unusable:
            return None
        has_ended = document.get(END) is True or is_gone
        entries: bytes = b""
        groups: Mapping[str, Any] = {}
        if has_entered:
            with suppress(Unusable):  # it has read no ring yet
                entries, _, beside = self._entered.read_new()
                groups = table_of(beside.get(handed_over.GROUPS))
        if not rows and not entries and not has_ended and self.announced is not None:
            return None
        process = self._describe_process(document)
        is_changed, self.announced, self.is_over = process != self.announced, process, has_ended
        if not is_changed and groups == self._groups:
            groups = {}  # who reads knows them
        self._groups = groups or self._groups
        cpu = list_of(document.get(CPU))[:3]
        return Handed(process, is_changed, rows, missed, has_ended, entries, groups, cpu)

    def _describe_process(self, document: Mapping[str, Any]) -> HandingProcess:
        who = table_of(document.get(WHO))
        stages = tuple(map(text_of, list_of(document.get(STAGES))[: batches.STAGES_AT_MOST]))
        waits_for = {key: text_of(whom) for key, whom in table_of(document.get(WAITS)).items() if key in stages}
        # Who waits for its workers, or only waits, in whatever it does, is a controller.
        waits = who.get("under") == parts.RAY_DRIVER or parts.WORKERS in waits_for.values()
        waits = waits or (bool(stages) and len(waits_for) == len(set(stages)))
        texts = {key: text_of(who.get(key)) for key in ("role", "part", "under", "place")}
        rank, pid, world_size = (small_number(who.get(key)) for key in ("rank", "pid", "world_size"))
        return HandingProcess(
            self.number, self._name, rank, texts["role"], texts["part"], pid or 0, texts["under"], waits,
            world_size or 0, stages, texts["place"], waits_for,
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """For the next keeper."""
        return {_POSITION: self._handed.position, _POSITION_OF_RINGS: self._entered.position}

    def remove(self) -> None:
        """Clear away what was read to its end."""
        if self.is_over:
            self._handed.path.unlink(missing_ok=True)
            self._entered.path.unlink(missing_ok=True)


def in_batches(handed: list[Handed]) -> Iterator[tuple[dict[str, Any], list[tuple[str, int, bytes]]]]:
    """Their heads and sections: as a rule one; several where there is too much for one."""
    head: dict[str, Any] = _make_empty()
    sections: list[tuple[str, int, bytes]] = []
    size = 0
    for new in handed:
        new_bytes = len(new.rows) + len(new.entries)
        if sections and (size + new_bytes > _ROWS_AT_MOST or len(head["processes"]) >= _ANNOUNCED_AT_MOST):
            yield head, sections
            head, sections, size = _make_empty(), [], 0
        number = new.process.number
        if new.is_changed:
            head["processes"].append(new.process.as_json())
        if new.has_ended:
            head["ended"].append(number)
        head["missed"] += new.missed
        if new.cpu:
            head[CPU].append([number, *new.cpu])
        sections.append((batches.STAGES, number, new.rows))
        if new.entries:
            sections.append((batches.COLLECTIVES, number, new.entries))
            head[handed_over.GROUPS].update(new.groups)
        size += new_bytes
    yield head, sections


def _make_empty() -> dict[str, Any]:
    return {"processes": [], "ended": [], "missed": 0, handed_over.GROUPS: {}, CPU: []}
