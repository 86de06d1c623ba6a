"""Adoption: what a killed process left on this host is sealed into its run, with what it was inside of.

Done by the keeper of the run's processes on this host, by `mstxkit run` and by `mstxkit collect`. Several
adopters may try at once: whoever renames the pointer file first does it. An adopter may itself be killed: the next one
goes on where it was, bank by bank. Nothing is followed out of the run's own folders.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Collection, NamedTuple

from .. import faults
from ..errors import FormatError, MstxkitError, NewerVersionError
from ..host import detached, identity, life
from ..store import documents, layout, livefile, process_pointer, run_file, sealed_place, segment, stacks
from ..store.block_index import Indexed
from ..store.values import whole_number
from . import blocks, live
from .sealed import SealedFiles, cut_torn_end

_ROTATE_BYTES, _NO_QUOTA, _LOOKS_EVERY_S, _LOOKS_IN_VAIN = 1 << 29, 1 << 62, 0.5, 20


class Adopted(NamedTuple):
    """One process whose live file was sealed."""

    name: str
    records: int
    open_ranges: bool


def main() -> None:
    """A process of its own, one on a host, while there is ever more to do, until the folder of live files is gone."""
    detached.let_go()
    lock, looks = Path(sys.argv[2]) / f"{layout.ADOPTS}{identity.name_host()}", _LOOKS_IN_VAIN
    is_only_one = life.hold_lock(lock)
    while is_only_one and looks and lock.exists():
        looks = _LOOKS_IN_VAIN if collect_dead(sys.argv[1]) else looks - 1
        time.sleep(_LOOKS_EVERY_S)


class _Interrupted(Exception):
    """The adopter was told to leave off; what it has done stays done."""


def collect_dead(
    run: str | os.PathLike[str],
    go_on: Callable[[], bool] = lambda: True,
    by: str | None = None,
    when_gone: Callable[[str], int | None] = lambda name: None,
    on_problem: Callable[[str, Exception], object] = lambda name, exc: faults.note_fault("adopt", exc),
    but: Collection[str] = (),
) -> list[Adopted]:
    """Seal everything that dead processes of a run left on this host.
    `run`: the run folder. `go_on`: asked before each bank; where it says no, the rest is left to the next call. `by`:
    the process of the run that does it, by its name. `when_gone`: when one was gone that it watched, by its name,
    CLOCK_MONOTONIC; None of the others: it sees now that they are gone. `on_problem`: told, by the name of a pointer,
    why what is left of its process could not be sealed now. `but`: processes that are left alone, by name. Raises
    MstxkitError: `run` is no run folder.
    """
    folder = Path(os.path.realpath(run))
    run_id = run_file.id_of(folder)
    if run_id is None:
        raise MstxkitError(run_file.why_none(run))
    adopted = []
    for pointer in process_pointer.all_here(folder):
        if pointer.name.partition(layout.POINTER)[0] in but:
            continue
        try:
            adopted.append(_adopt_file(pointer, folder, run_id, go_on, by, when_gone))
        except _Interrupted:
            break
        except (OSError, ValueError, TypeError, KeyError, MstxkitError) as exc:
            on_problem(pointer.name, exc)  # one that cannot be adopted must not keep the others from it
    return [adoption for adoption in adopted if adoption is not None]


def _adopt_file(
    pointer: Path, run: Path, run_id: str, go_on: Callable[[], bool], by: str | None,
    when_gone: Callable[[str], int | None],
) -> Adopted | None:  # fmt: skip
    about = documents.read_json(pointer, process_pointer.LIMIT_BYTES)
    if about is None or about.get("run") != run_id or life.is_alive(about) is not False:
        return None
    path = _checked_path(about, identity.process_name(about), run_id)
    if about.get("boot") != identity.boot_id():  # nobody of today's saw when it was gone
        by = None
    lock = live.life_of(path) if about.get("life") and path.parent.is_dir() else None
    if lock is not None and not life.hold_lock(lock):
        return None  # another one is adopting it
    try:
        claimed = _claim_pointer(pointer, has_lock=lock is not None)
        if claimed is not None:
            return _seal_claimed(claimed, pointer, _Left(run, run_id, about, path, go_on, by, when_gone))
        # Another one has done it meanwhile, and took the lock's file along: it has been made anew here.
        life.let_go(live.life_of(path))
        live.forget_folder(path.parent)
        return None
    finally:
        if lock is not None:  # its file stays where the work is left to the next one
            life.let_go(lock, remove=False)


class _Left(NamedTuple):
    """What a process that no longer lives left behind, and who seals it."""

    run: Path
    run_id: str
    about: dict[str, Any]  # its pointer's fields
    path: Path  # of its live file
    go_on: Callable[[], bool]
    by: str | None
    when_gone: Callable[[str], int | None]

    @property
    def name(self) -> str:
        return identity.process_name(self.about)


def _seal_claimed(claimed: Path, pointer: Path, left: _Left) -> Adopted | None:
    result = None
    try:
        try:
            result = _seal_file(left)
        except NewerVersionError:  # a newer mstxkit can read that
            raise
        except FormatError as exc:  # nothing in it can be read: it is left where it is, and no longer announced
            faults.note_fault("adopt", exc)
    except BaseException:
        os.rename(claimed, pointer)
        raise
    # The pointer goes last: until then, whoever comes next does the rest.
    life.let_go(live.life_of(left.path))
    live.forget_folder(left.path.parent)
    claimed.unlink(missing_ok=True)
    return result


def _claim_pointer(pointer: Path, has_lock: bool) -> Path | None:
    """Rename the pointer of a dead process so that nobody else adopts it; None where somebody does, or has. `has_lock`:
    do we hold its lock? Then whoever claimed it before is gone, in whatever namespace he was.
    """
    base, _, adopter = pointer.name.partition(layout.CLAIMED)
    pid, _, started = adopter.partition(".")
    if not has_lock and pid.isdecimal() and str(identity.pid_start(int(pid))) == started:
        return None
    claimed = pointer.with_name(f"{base}{layout.CLAIMED}{os.getpid()}.{identity.pid_start(os.getpid())}")
    try:
        os.rename(pointer, claimed)
    except FileNotFoundError:
        return None
    return claimed


def _checked_path(about: dict[str, Any], name: str, run_id: str) -> Path:
    """The live file's path, if it is where a live file of this run and process can be."""
    path = Path(str(about.get("path")))
    is_its_own = path.name == f"{name}{layout.LIVE_SUFFIX}" and path.parent.name == run_id
    if not path.is_absolute() or not is_its_own or ".." in path.parts:
        raise MstxkitError(f"the pointer of {name} names {path}, which is no place of a live file; it is left alone")
    return path


def _map_file(path: Path) -> mmap.mmap:
    """A private, read-only map of a file of this user, never of a link."""
    try:
        descriptor = documents.open_regular(path)
    except FormatError as exc:
        raise MstxkitError(f"{path} is {exc}; it is left alone") from None
    with documents.close_after(descriptor):
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise MstxkitError(f"{path} is no file of this user; it is left alone")
        return mmap.mmap(descriptor, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)


def _seal_file(left: _Left) -> Adopted | None:
    result = None
    try:
        mapping = _map_file(left.path)
    except FileNotFoundError:
        return None  # its process was killed before it was made, its host was started anew, or somebody removed it
    except ValueError:
        pass  # empty: killed while it was made
    else:
        with mapping, memoryview(mapping) as view:
            result = _seal_view(left, view)
    for suffix in (layout.LIVE_SUFFIX, layout.STACKS_SUFFIX, layout.TOLD_SUFFIX):
        left.path.with_suffix(suffix).unlink(missing_ok=True)
    return result


def _seal_view(left: _Left, view: memoryview) -> Adopted | None:
    if not any(view[: len(livefile.MAGIC)]):
        return None  # killed before it was laid out
    header = livefile.read_header(view)
    who = livefile.read_identity(view)
    if who.get("run", left.run_id) != left.run_id:
        raise MstxkitError(f"{left.name} belongs to another run; it is left alone")
    folders = [*sealed_place.on_this_host(left.run, left.run_id), left.run / layout.SEALED]
    names = _names_before(folders, left.name, view, header)
    has_nothing = who.get("parent") and not names and not livefile.read_slots(view, header)
    if has_nothing and not any(bank.raw for bank in blocks.banks_in_order(view, header.layout)):
        return None  # it was forked, and became another program or ended before it recorded anything
    return _seal_banks(folders, names, left, view)


def _names_before(folders: list[Path], name: str, view: memoryview, header: livefile.Header) -> list[str]:
    """Its sealed files, oldest first. The folders are not listed, where a program that forks all the time has tens of
    thousands, for one that never came to a second bank, and so sealed none, unless another adopter began to.
    """
    seqs = (livefile.read_bank_head(view, header.layout.bank_at(k)).seq for k in range(header.layout.bank_count))
    is_in_first = header.state == livefile.RECORDING and sum(map(bool, seqs)) < 2
    if is_in_first and not os.path.lexists(sealed_place.path_of(folders, layout.sealed_name(name, 1))):
        return []
    return layout.in_order(filter(layout.is_sealed, sealed_place.all_names(folders, name)))


def _seal_banks(folders: list[Path], names: list[str], left: _Left, view: memoryview) -> Adopted:
    (sealed_before, has_ended), header = _sealed_before(folders, names), livefile.read_header(view)
    # On this host's own disk, where it has one: the run's may be full.
    files = SealedFiles(folders[0], left.name, _ROTATE_BYTES, _NO_QUOTA, lambda count: None, before=names)
    try:
        records = 0
        for block in blocks.of_left_banks(view, header.layout, sealed_before):
            if not left.go_on():
                raise _Interrupted
            files.append(block)
            records += block.records
        if has_ended:
            return Adopted(left.name, records, False)
        open_ranges = blocks.of_open_ranges(view)
        # In one write: a killed adopter leaves both or none.
        death = stacks.left_beside(left.path).death
        if left.by is not None:
            gone_ns = left.when_gone(left.name)
            seen = {"by": left.by, "gone_ns": gone_ns or time.monotonic_ns(), "watched": gone_ns is not None}
            death = {**seen, **death} if gone_ns is None else {**death, **seen}  # who watched it knows the order best
        ended = "left" if life.has_execed(left.about) else "killed"
        end = blocks.of_end(view, "exit" if header.state == livefile.CLOSED else ended, **death)
        files.append((open_ranges or Indexed(b"")) + end, is_last=True)
        return Adopted(left.name, records, open_ranges is not None)
    finally:
        files.close()


def _sealed_before(folders: list[Path], names: list[str]) -> tuple[dict[int, int], bool]:
    """Banks that the process itself, or an adopter that was killed, has sealed, with how much of each; and whether its
    end was written.

    A block or a file torn by a kill is cut off: its bank is still in the live file.
    """
    banks: dict[int, int] = {}
    has_ended = False
    for name in names:
        path = sealed_place.path_of(folders, name)
        # It may have moved on into the run.
        with documents.close_after(sealed_place.open_sealed(folders, name)) as descriptor:
            data = documents.read_part(descriptor, 0, os.fstat(descriptor).st_size)
        if len(data) < segment.FILE_HEADER_BYTES and segment.file_header().startswith(data):
            path.unlink()
            continue
        try:
            parts = list(segment.scan_blocks(data))
        except FormatError:
            parts = []  # the reader says so
        for part in parts:
            if isinstance(part, segment.Block):
                bank, *held_of = (whole_number(part.meta.get(key)) for key in ("bank", "records", "attributes"))
                banks[bank] = max(sum(held_of), banks.get(bank, 0))
                has_ended |= part.kind == segment.END
            elif part.offset + part.size == len(data) and part.reason.startswith("file ends inside"):
                cut_torn_end(path, part.offset)
    return banks, has_ended
