"""Live files of a run, found through its pointer files and copied while their processes may go on writing.

Only what this host holds can be read: a pointer from another host says that a process exists, no more.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..errors import FormatError
from ..host import identity, life
from ..store import documents, layout, livefile, process_pointer, records, stacks
from ..store.values import text_of, whole_number
from .folder import LIMIT_BYTES, Damage, Folder
from .processes import ENDED, KILLED, LEFT, LOST, RUNNING, Process, Processes

_STAT_BLOCK_BYTES = 512
# Pointers are renamed when they are adopted: the second listing finds those under their new name.
_LISTINGS = 2


def read_all(folder: Folder, processes: Processes) -> list[Damage]:
    """Copy every live file that can be reached; the result lists what could not be read."""
    damage: list[Damage] = []
    done: set[str] = set()
    for _ in range(_LISTINGS):
        # `<process>.json`, and `<process>.json.adopting.…` while another process seals what is there.
        pointers = (name for name in folder.names() if layout.POINTER in name and not name.startswith("."))
        for name in [name for name in pointers if name not in done]:
            done.add(name)
            try:
                _read_file(folder, name, processes, damage)
            except FileNotFoundError:
                continue  # its process ended and sealed all it had, or it is being adopted: then it has another name
            except (FormatError, OSError, MemoryError) as exc:
                damage.append(Damage.because(folder.path_of(name), exc))
    return damage


def _read_file(folder: Folder, name: str, processes: Processes, damage: list[Damage]) -> None:
    pointer = process_pointer.parse_pointer(folder.read(name, size=process_pointer.LIMIT_BYTES))
    process = processes.of(pointer, name.partition(layout.POINTER)[0])
    process.learn({"identity": {k: pointer[k] for k in ("run", "boot") if k in pointer}}, -1.0)
    process.state = state_of(pointer)
    process.live_path = text_of(pointer.get("path"))
    if process.state == KILLED and (death := stacks.left_beside(Path(process.live_path)).death):
        process.learn_death(death)
    boot = pointer.get("boot")
    is_here = boot == identity.boot_id() if boot else pointer.get("host") == identity.name_host()
    if process.state != KILLED and not is_here:
        return
    try:
        with documents.close_after(documents.open_regular(process.live_path)) as fd:
            status, head = os.fstat(fd), documents.read_part(fd, 0, livefile.HEADER_BYTES)
            # Ours are allocated as a whole; who ends by os._exit gives back what it has not used.
            is_whole = status.st_blocks * _STAT_BLOCK_BYTES >= status.st_size
            if not is_whole and (len(head) < livefile.HEADER_BYTES or livefile.read_exit_status(head) is None):
                raise FormatError("a live file with holes: it claims more than there is")
            # The whole file, slots before banks: a range that ends meanwhile is in one of them.
            _take_file(bytearray(documents.read_part(fd, 0, LIMIT_BYTES)), fd, process, damage)
    except FileNotFoundError:
        process.live_path_gone = True
    except (FormatError, OSError, ValueError) as exc:
        damage.append(Damage.because(process.live_path, exc))


def _take_file(data: bytearray, fd: int, process: Process, damage: list[Damage]) -> None:
    header = livefile.read_header(data)
    if header.state == livefile.BEING_MADE:
        return
    if header.state == livefile.CLOSED:
        process.state = ENDED
    process.exit_status = livefile.read_exit_status(data)
    process.banks = _read_banks(data, fd, header, process, damage)
    # What a sealed block's meta would say of this process now.
    clock = {"kind": header.clock, "ticks_per_ns": header.ticks_per_ns, "anchors": livefile.read_anchors(data)}
    who, counters = livefile.read_identity(data), livefile.read_counters(data)
    meta = {"identity": who, "counters": counters, "clock": clock, "heartbeat_ns": livefile.heartbeat_ns(data)}
    process.learn(meta, max((bank.seq for bank in process.banks), default=0))
    process.slots = livefile.read_slots(data, header) if header.state == livefile.RECORDING else []


def _read_banks(
    data: bytearray, fd: int, header: livefile.Header, process: Process, damage: list[Damage]
) -> list[livefile.BankCopy]:
    banks = []
    _copy_again_what_grew(data, fd, header.layout)
    for index in range(header.layout.bank_count):
        bank = livefile.read_bank(data, header.layout, index)
        if bank is None or not _is_still_the_same(data, fd, header.layout.bank_at(index)):
            continue
        texts, unread = livefile.read_texts(bank.text, bank.salt)
        process.learn_texts(texts)
        banks.append(bank)
        if unread:
            at = header.layout.bank_at(index) + header.layout.bank_bytes - len(bank.text)
            damage.append(Damage(process.live_path, at, unread, "damaged texts of a bank"))
    return sorted(banks, key=lambda bank: bank.seq)


def _copy_again_what_grew(data: bytearray, fd: int, layout: livefile.Layout) -> None:
    """Copy earlier banks that were written after they were copied: whoever sees a range sees all that ended before."""
    places = [layout.bank_at(index) for index in range(layout.bank_count)]
    newest = max((livefile.read_bank_head(data, at).seq for at in places), default=0)
    for at in places:
        is_as_copied = data.startswith(os.pread(fd, livefile.BANK_HEADER_BYTES, at), at)
        bank = b"" if is_as_copied else documents.read_part(fd, at, layout.bank_bytes)
        if len(bank) == layout.bank_bytes and livefile.read_bank_head(bank).seq < newest:
            data[at : at + len(bank)] = bank


def _is_still_the_same(data: bytearray, fd: int, at: int) -> bool:
    """One that was sealed and used again meanwhile is in a sealed file by now. Of the count: memory-order.md."""
    now = livefile.read_bank_head(os.pread(fd, livefile.BANK_HEADER_BYTES, at).ljust(livefile.BANK_HEADER_BYTES, b"\0"))
    copied = livefile.read_bank_head(data, at)
    is_same_bank = (now.seq, now.salt) == (copied.seq, copied.salt)
    return is_same_bank and now.record_count >= copied.record_count


def state_of(pointer: dict[str, Any]) -> str:
    """RUNNING, KILLED, or LEFT for another program; LOST where that cannot be told from here."""
    if life.is_of_earlier_boot(pointer):
        return KILLED
    who = {**pointer, **{name: whole_number(pointer.get(name)) for name in ("pid", "pid_start", "pidns")}}
    alive = life.is_alive(who)
    if alive is False and life.has_execed(who):
        return LEFT
    return LOST if alive is None else RUNNING if alive else KILLED


def find_losses(processes: list[Process]) -> list[Damage]:
    """What is missing of live files, once it is known how their processes ended and what was sealed."""
    from . import decode

    damage = []
    for process in processes:
        if process.live_path_gone and not process.ended and process.state != ENDED:
            reason = "the live file is not there: what was not sealed is lost, or out of reach from here"
            damage.append(Damage(process.live_path, 0, 0, reason))
        # In a running process records whose check bits do not hold may be half written.
        for bank in process.unsealed() if process.state != RUNNING else ():
            if lost := decode.from_bank(bank)[1]:
                reason = f"{lost} records of bank {bank.seq} whose check bits do not hold"
                damage.append(Damage(process.live_path, 0, lost * records.RECORD_BYTES, reason))
    return damage
