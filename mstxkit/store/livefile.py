"""The live file: its layout, how to lay one out, and how to read one that another process is writing or has left.

Pure encode and decode on buffers; files are made in `recorder/live.py`. Layout: `docs/internals/format.md`.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Container, Iterator, NamedTuple, Union

from ..errors import FormatError, NewerVersionError
from . import records

Buffer = Union[bytes, bytearray, memoryview]

MAGIC = b"MSTXLIVE"
VERSION = 1
HEADER_BYTES = 8192
SLOT_BYTES = 32
BANK_HEADER_BYTES = 128
TRAILER = struct.Struct("<IHHII")
SLOT = struct.Struct("<QQQQ")

BEING_MADE, RECORDING, CLOSED = 0, 1, 2
FREE, ACTIVE, FULL = 0, 1, 2
SITE, STAGE, TEXT, TRACK = 1, 2, 3, 4
CLOCKS = {1: "monotonic", 2: "tsc", 3: "cntvct", 4: "fake"}

# Offsets in the header page.
STATE_AT = 10
CLOCK_AT = 56
HEARTBEAT_AT = 72
COUNTERS_AT = 80
COUNTERS = (
    "dropped", "slots_overflowed", "attributes_lost", "names_capped", "texts_cut", "faults", "evicted", "coalesced",
    "own_cost_ns",
)  # fmt: skip
ACTIVE_BANK_AT = 152
IDENTITY_WHICH_AT = 156
EXIT_AT = 160
ANCHOR_COUNT_AT = 256
ANCHORS_AT = 264
ANCHOR_BYTES = 32
ANCHOR_ENTRIES = 64
IDENTITY_AT = 4096
IDENTITY_BYTES = 2048
_IDENTITY_ROOM = IDENTITY_BYTES - 8  # after length and checksum
_HAS_EXITED = 0x100
_IDENTITY_TEXT = 64  # characters: a host name, a boot id or a run id is never longer

_HEADER = struct.Struct("<8sHHIIIQQQQIId")
_BANK = struct.Struct("<QI4xQQQQQ")
_U64 = struct.Struct("<Q")
_ANCHOR = struct.Struct("<QQQQ")
_SITE = struct.Struct("<HHI")
_TRACK = struct.Struct("<QQ")


class Layout(NamedTuple):
    """Sizes of a live file. Bytes."""

    slot_count: int
    bank_count: int
    bank_bytes: int

    @property
    def banks_at(self) -> int:
        """Offset of bank 0: after header and slots, on a page."""
        return (HEADER_BYTES + self.slot_count * SLOT_BYTES + 4095) // 4096 * 4096

    @property
    def stage_slots(self) -> int:
        """The last free slots, which only stages take."""
        return self.slot_count // 16

    @property
    def total_bytes(self) -> int:
        """Size of the whole file."""
        return self.banks_at + self.bank_count * self.bank_bytes

    def bank_at(self, index: int) -> int:
        """Offset of bank `index`."""
        return self.banks_at + index * self.bank_bytes


class Header(NamedTuple):
    """The fixed part of a live file's header."""

    state: int
    layout: Layout
    nonce: int
    clock: int
    native: bool
    ticks_per_ns: float


class Anchor(NamedTuple):
    """One instant on three clocks: ticks, CLOCK_MONOTONIC ns, CLOCK_REALTIME ns; `error_ns` is half the bracket."""

    ticks: int
    monotonic_ns: int
    realtime_ns: int
    error_ns: int


class Slot(NamedTuple):
    """A range that is open. `start` in absolute ticks."""

    start: int
    site: int
    track: int
    step: int
    stage: int
    depth: int
    thread: int


class SiteText(NamedTuple):
    """A call site as a text entry describes it; `own_stage` 0: the site is no stage."""

    name: str
    domain: str
    own_stage: int


class TrackText(NamedTuple):
    """A track as a text entry describes it; `name`: of its thread in Python, "" where that is not known.

    `is_shared`: other threads had it before, one after the other.
    """

    thread: int
    is_task: bool
    name: str = ""
    is_shared: bool = False

    def after(self, earlier: TrackText | None) -> TrackText:
        """This one, where `earlier` was known of the track."""
        is_shared = earlier is not None and (earlier.is_shared or earlier.thread != self.thread)
        return self._replace(is_shared=self.is_shared or is_shared)


class Texts(NamedTuple):
    """The side table of one bank, decoded."""

    sites: dict[int, SiteText]
    stages: dict[int, str]
    texts: dict[int, str]
    tracks: dict[int, TrackText]


class BankHead(NamedTuple):
    """A bank's header fields, in their order. `origin` in ticks."""

    seq: int
    state: int
    salt: int
    origin: int
    record_count: int
    text_bytes: int
    activated_ns: int


class BankCopy(NamedTuple):
    """A bank's header fields, with copies of its raw records and of its text bytes."""

    place: int
    seq: int
    state: int
    salt: int
    origin: int
    record_count: int
    activated_ns: int
    raw: bytes
    text: bytes


def lay_out(view: memoryview, layout: Layout, nonce: int, native: bool) -> None:
    """Write the header of a new live file into a zeroed buffer. State stays BEING_MADE."""
    _HEADER.pack_into(
        view, 0, MAGIC, VERSION, BEING_MADE, HEADER_BYTES, layout.slot_count, layout.bank_count, layout.bank_bytes,
        HEADER_BYTES, layout.banks_at, nonce, 0, int(native), 0.0,
    )  # fmt: skip


def read_header(view: Buffer, size: int | None = None) -> Header:
    """Decode the header. `size`: of the whole file, in bytes, where `view` is only its beginning. Raises FormatError:
    not a live file, or sizes that do not fit it; NewerVersionError: written by a newer mstxkit.
    """
    if len(view) < HEADER_BYTES or bytes(view[:8]) != MAGIC:
        raise FormatError("not a live file of mstxkit", 0)
    fields = _HEADER.unpack_from(view, 0)
    _, version, state, header_bytes, slots, banks, bank_bytes, _, _, nonce, clock, native, per_ns = fields
    if version > VERSION:
        raise NewerVersionError(f"live file of format {version}; this mstxkit reads up to {VERSION}: upgrade it", 8)
    layout = Layout(slots, banks, bank_bytes)
    if header_bytes != HEADER_BYTES or bank_bytes < 4096 or layout.total_bytes > (len(view) if size is None else size):
        raise FormatError("a live file whose sizes do not fit it", 12)
    return Header(state, layout, nonce, clock, bool(native), per_ns)


def set_state(view: memoryview, state: int) -> None:
    """Store BEING_MADE, RECORDING or CLOSED."""
    struct.pack_into("<H", view, STATE_AT, state)


def write_exit_status(view: memoryview, status: int) -> None:
    """Say with which status the process ends by os._exit."""
    struct.pack_into("<I", view, EXIT_AT, _HAS_EXITED | status & 0xFF)


def read_exit_status(view: Buffer) -> int | None:
    """The status of os._exit; None where it was not called."""
    field = int(struct.unpack_from("<I", view, EXIT_AT)[0])
    return field & 0xFF if field & _HAS_EXITED else None


def heartbeat_ns(view: Buffer) -> int:
    """CLOCK_MONOTONIC ns of the last heartbeat, 0 before the first."""
    return int(_U64.unpack_from(view, HEARTBEAT_AT)[0])


def read_counters(view: Buffer) -> dict[str, int]:
    """All counters of the header by name."""
    return dict(zip(COUNTERS, struct.unpack_from(f"<{len(COUNTERS)}Q", view, COUNTERS_AT)))


def add_to_counter(view: memoryview, name: str, amount: int) -> None:
    """Add to one counter. Not atomic: for counters with a single writer."""
    at = COUNTERS_AT + 8 * COUNTERS.index(name)
    _U64.pack_into(view, at, _U64.unpack_from(view, at)[0] + amount & records.U64)


def write_anchor(view: memoryview, anchor: Anchor) -> None:
    """Append an anchor: the first one stays, later ones go round."""
    count = _U64.unpack_from(view, ANCHOR_COUNT_AT)[0]
    place = 0 if count == 0 else 1 + (count - 1) % (ANCHOR_ENTRIES - 1)
    _ANCHOR.pack_into(view, ANCHORS_AT + place * ANCHOR_BYTES, *anchor)
    _U64.pack_into(view, ANCHOR_COUNT_AT, count + 1)


def newest_anchor(view: Buffer) -> Anchor | None:
    """The anchor that was appended last; None while there is none. *Cost*: a hundredth of reading all of them."""
    count = _U64.unpack_from(view, ANCHOR_COUNT_AT)[0]
    place = 0 if count < 2 else 1 + (count - 2) % (ANCHOR_ENTRIES - 1)
    return Anchor(*_ANCHOR.unpack_from(view, ANCHORS_AT + place * ANCHOR_BYTES)) if count else None


def read_anchors(view: Buffer) -> list[Anchor]:
    """All anchors held, by ticks; one that is being overwritten at this moment may be missing."""
    count = min(_U64.unpack_from(view, ANCHOR_COUNT_AT)[0], ANCHOR_ENTRIES)
    anchors = sorted(Anchor(*_ANCHOR.unpack_from(view, ANCHORS_AT + i * ANCHOR_BYTES)) for i in range(count))
    return [a for i, a in enumerate(anchors) if i == 0 or a.monotonic_ns >= anchors[i - 1].monotonic_ns]


def write_identity(view: memoryview, identity: dict[str, Any]) -> None:
    """Store the identity in the copy that is not in use, then switch to it."""
    raw = _identity_json(identity)
    which = 1 - struct.unpack_from("<I", view, IDENTITY_WHICH_AT)[0] & 1
    at = IDENTITY_AT + which * IDENTITY_BYTES
    struct.pack_into("<II", view, at, len(raw), zlib.crc32(raw))
    view[at + 8 : at + 8 + len(raw)] = raw
    struct.pack_into("<I", view, IDENTITY_WHICH_AT, which)


def _identity_json(identity: dict[str, Any]) -> bytes:
    """JSON that fits a copy: where it would not, long texts are cut, and then what is longest is left out."""
    import json

    raw = json.dumps(identity).encode()
    if len(raw) <= _IDENTITY_ROOM:
        return raw
    kept = {key: value[:_IDENTITY_TEXT] if isinstance(value, str) else value for key, value in identity.items()}
    while len(raw := json.dumps(kept).encode()) > _IDENTITY_ROOM:
        del kept[max(kept, key=lambda key: len(json.dumps({key: kept[key]})))]
    return raw


def read_identity(view: Buffer) -> dict[str, Any]:
    """The identity, from whichever copy is whole; {} where none is."""
    import json

    which = struct.unpack_from("<I", view, IDENTITY_WHICH_AT)[0] & 1
    for copy in (which, 1 - which):
        at = IDENTITY_AT + copy * IDENTITY_BYTES
        length, crc = struct.unpack_from("<II", view, at)
        raw = bytes(view[at + 8 : at + 8 + min(length, _IDENTITY_ROOM)])
        try:
            identity = json.loads(raw) if raw and zlib.crc32(raw) == crc else None
        except (ValueError, RecursionError):  # a checksum that holds does not say who wrote it
            identity = None
        if isinstance(identity, dict):
            return identity
    return {}


def identity_mark(view: Buffer) -> tuple[int, ...]:
    """Another one once the identity has changed."""
    which = struct.unpack_from("<I", view, IDENTITY_WHICH_AT)[0] & 1
    return which, *struct.unpack_from("<II", view, IDENTITY_AT + which * IDENTITY_BYTES)


def read_slots(view: Buffer, header: Header) -> list[Slot]:
    """The ranges open at this moment whose slot is whole."""
    slots = []
    for place in range(header.layout.slot_count):
        start, w1, w2, mark = SLOT.unpack_from(view, HEADER_BYTES + place * SLOT_BYTES)
        if mark and mark == slot_mark(start, w1, w2, header.nonce):
            slots.append(Slot(start, w1 & 0xFFFF, w1 >> 16 & 0xFFFF, w1 >> 32, w2 & 0xFFFF, w2 >> 16 & 0xFF, w2 >> 32))
    return slots


def slot_mark(start: int, w1: int, w2: int, nonce: int) -> int:
    """What a slot's last word must be while its range is open; never 0."""
    return start ^ w1 ^ w2 ^ nonce or 1


def read_bank_head(view: Buffer, at: int = 0) -> BankHead:
    """The fixed part of a bank."""
    return BankHead(*_BANK.unpack_from(view, at))


def count_recorded(view: Buffer, layout: Layout) -> tuple[int, int]:
    """Sequence number of the active bank, and the records in it: another pair once anything was recorded."""
    (active,) = struct.unpack_from("<I", view, ACTIVE_BANK_AT)
    head = read_bank_head(view, layout.bank_at(min(active, layout.bank_count - 1)))
    return head.seq, head.record_count


def read_bank(view: Buffer, layout: Layout, index: int, states: Container[int] = (ACTIVE, FULL)) -> BankCopy | None:
    """Copy one bank; None if it was never used, is in no such state, or was recycled while it was copied."""
    at = layout.bank_at(index)
    seq, state, salt, origin, count, text_used, activated = read_bank_head(view, at)
    room = layout.bank_bytes - BANK_HEADER_BYTES
    if seq == 0 or state not in states or text_used > room or count * records.RECORD_BYTES > room - text_used:
        return None
    first, end = at + BANK_HEADER_BYTES, at + layout.bank_bytes
    raw = bytes(view[first : first + count * records.RECORD_BYTES])
    text = bytes(view[end - text_used : end])
    if read_bank_head(view, at).seq != seq or read_bank_head(view, at).salt != salt:
        return None
    return BankCopy(index, seq, state, salt, origin, count, activated, raw, text)


def activate_bank(view: memoryview, layout: Layout, index: int, seq: int, salt: int, origin: int, now_ns: int) -> None:
    """Make a free bank the active one."""
    _BANK.pack_into(view, layout.bank_at(index), seq, ACTIVE, salt, origin, 0, 0, now_ns)
    struct.pack_into("<I", view, ACTIVE_BANK_AT, index)


def pack_text(kind: int, entry_id: int, payload: bytes, salt: int) -> bytes:
    """A text entry as it lies in a bank: padded payload, then its trailer."""
    padding = b"\0" * (-len(payload) % 8)
    crc = zlib.crc32(payload, salt & 0xFFFFFFFF)
    return payload + padding + TRAILER.pack(len(payload), kind, 0, entry_id, crc)


def site_payload(name: bytes, domain: bytes, own_stage: int) -> bytes:
    """Payload of a SITE entry."""
    return _SITE.pack(own_stage, len(domain), len(name)) + domain + name


def track_payload(thread: int, is_task: bool, name: str = "") -> bytes:
    """Payload of a TRACK entry."""
    return _TRACK.pack(thread, int(is_task)) + name.encode("utf-8", "backslashreplace")


def read_texts(text: bytes, salt: int | None) -> tuple[Texts, int]:
    """Decode a bank's text bytes; the second value is how many bytes at the far end could not be read.

    Without a salt the entries' own checksums are not looked at (a sealed block has one over everything).
    """
    table = Texts({}, {}, {}, {})
    left = len(text)
    for first, payload, (_, kind, _, entry_id, crc) in text_entries(text):
        if salt is not None and zlib.crc32(payload, salt & 0xFFFFFFFF) != crc:
            break
        if kind == SITE and len(payload) >= _SITE.size:
            own_stage, domain_bytes, name_bytes = _SITE.unpack_from(payload)
            domain = payload[_SITE.size : _SITE.size + domain_bytes].decode("utf-8", "replace")
            name = payload[_SITE.size + domain_bytes :][:name_bytes].decode("utf-8", "replace")
            table.sites[entry_id] = SiteText(name, domain, own_stage)
        elif kind == STAGE:
            table.stages[entry_id] = payload.decode("utf-8", "replace")
        elif kind == TEXT:
            table.texts[entry_id] = payload.decode("utf-8", "replace")
        elif kind == TRACK and len(payload) >= _TRACK.size:
            thread, is_task = _TRACK.unpack_from(payload)
            name = payload[_TRACK.size :].decode("utf-8", "replace")
            table.tracks[entry_id] = TrackText(thread, bool(is_task), name).after(table.tracks.get(entry_id))
        left = first
    return table, left


def text_entries(text: bytes) -> Iterator[tuple[int, bytes, tuple[int, int, int, int, int]]]:
    """(where it begins, payload, trailer) of each entry of a bank's text bytes, in the order in which they were
    written, which is from the end; up to one that says that it begins before them.
    """
    at = len(text)
    while at >= TRAILER.size:
        trailer = TRAILER.unpack_from(text, at - TRAILER.size)
        length = trailer[0]
        first = at - TRAILER.size - length - (-length % 8)
        if first < 0:
            return
        yield first, text[first : first + length], trailer
        at = first


def without_checksums(text: bytes) -> bytes:
    """A bank's text bytes with zeros for the entries' own checksums, which cannot be compressed: a sealed block has one
    over everything.
    """
    made, end = bytearray(text), len(text)
    for first, _, (*about, _) in text_entries(text):
        TRAILER.pack_into(made, end - TRAILER.size, *about, 0)
        end = first
    return bytes(made)
