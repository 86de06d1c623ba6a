"""What an engine has written into a live file in memory, decoded by `livefile` and `records`."""

from __future__ import annotations

from typing import Any, NamedTuple

from mstxkit.store import livefile, records

MONOTONIC, FAKE = 1, 4
NONCE = 0x0123456789ABCDEF


class WrittenRange(NamedTuple):
    """A range or mark as a reader sees it. Times in ticks."""

    name: str
    domain: str
    stage: str | None
    own_stage: str | None
    step: int | None
    track: int
    depth: int
    error: bool
    start: int
    duration: int
    attributes: dict[str, Any]
    busy: int | None
    thread: int
    is_task: bool
    is_mark: bool


class WrittenOpen(NamedTuple):
    """A range that is open, as a reader sees it."""

    name: str
    stage: str | None
    step: int | None
    track: int
    depth: int
    start: int
    thread: int


class Written:
    """An engine attached to memory, and what it has written there so far."""

    def __init__(self, engine: Any, slot_count: int = 256, bank_count: int = 4, bank_bytes: int = 1 << 20) -> None:
        self.engine = engine
        self.layout = livefile.Layout(slot_count, bank_count, bank_bytes)
        self.view = memoryview(bytearray(self.layout.total_bytes))
        self._ticks = 1_000_000
        self._tick_to(self._ticks)
        livefile.lay_out(self.view, self.layout, NONCE, engine.NATIVE)
        engine.attach(self.view, NONCE)
        engine.set_recording(True)

    def tick(self, ticks: int) -> None:
        """Move the fake clock on."""
        self._tick_to(self._ticks + ticks)

    def _tick_to(self, ticks: int) -> None:
        self._ticks = ticks
        self.engine.set_fake_ticks(ticks)

    @property
    def banks(self) -> list[livefile.BankCopy]:
        """The banks that hold records, by sequence number."""
        found = [livefile.read_bank(self.view, self.layout, index) for index in range(self.layout.bank_count)]
        return sorted((bank for bank in found if bank is not None), key=lambda bank: bank.seq)

    @property
    def ranges(self) -> list[WrittenRange]:
        """All ranges that have ended, in the order of their ends."""
        return [found for bank in self.banks for found in read_bank(bank) if not found.is_mark]

    @property
    def marks(self) -> list[WrittenRange]:
        """All marks."""
        return [found for bank in self.banks for found in read_bank(bank) if found.is_mark]

    @property
    def names(self) -> list[str]:
        """The names of the ranges that have ended, in the order of their ends."""
        return [found.name for found in self.ranges]

    def one(self, name: str) -> WrittenRange:
        """The only range of that name."""
        (found,) = [found for found in self.ranges if found.name == name]
        return found

    @property
    def open(self) -> list[WrittenOpen]:
        """All ranges that are open, outermost first: as the active bank names them."""
        last = max(self.banks, key=lambda bank: bank.seq)
        texts, _ = livefile.read_texts(last.text, last.salt)
        slots = livefile.read_slots(self.view, livefile.read_header(self.view))
        return sorted((_open(slot, texts) for slot in slots), key=lambda found: (found.track, found.depth))


def read_bank(bank: livefile.BankCopy) -> list[WrittenRange]:
    """Every whole record of a bank, with its attributes. Texts that are missing fail the test that asks."""
    texts, unread = livefile.read_texts(bank.text, bank.salt)
    assert unread == 0
    found: list[WrittenRange] = []
    for index, (w0, w1, w2) in enumerate(records.WORDS.iter_unpack(bank.raw)):
        assert records.is_whole(w0, w1, w2, bank.salt, index), f"record {index} is torn"
        if records.kind_of(w2) != records.ATTRIBUTE:
            found.append(_range(records.unpack_record(w0, w1, w2), bank, texts))
        elif w1 >> 32 == records.BUSY:
            found[-1] = found[-1]._replace(busy=w0)
        else:
            value = records.value_of(w1 >> 32 & 0xFF, w0, texts.texts)
            found[-1].attributes[texts.texts[w1 & 0xFFFFFFFF]] = value
    return found


def _range(record: records.Record, bank: livefile.BankCopy, texts: livefile.Texts) -> WrittenRange:
    site, track = texts.sites[record.site], texts.tracks[record.track]
    return WrittenRange(
        name=site.name,
        domain=site.domain,
        stage=texts.stages[record.stage] if record.stage else None,
        own_stage=texts.stages[site.own_stage] if site.own_stage else None,
        step=None if record.step == records.NO_STEP else record.step,
        track=record.track,
        depth=record.depth,
        error=record.error,
        start=bank.origin + record.end - record.duration,
        duration=record.duration,
        attributes={},
        busy=None,
        thread=track.thread,
        is_task=track.is_task,
        is_mark=record.kind == records.MARK,
    )


def _open(slot: livefile.Slot, texts: livefile.Texts) -> WrittenOpen:
    stage = texts.stages[slot.stage] if slot.stage else None
    step = None if slot.step == records.NO_STEP else slot.step
    return WrittenOpen(texts.sites[slot.site].name, stage, step, slot.track, slot.depth, slot.start, slot.thread)
