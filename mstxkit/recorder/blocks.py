"""Blocks as the sealer and adoption write them: a bank's records, the ranges still open, and how a process ended."""

from __future__ import annotations

import json
from typing import Any

from .. import livefile, records, segment
from ..livefile import Buffer


def of_records(view: Buffer, payload: segment.Payload, seq: int, origin: int) -> bytes:
    """A records block. Cost: the compression, which releases the GIL.

    Args:
        view: The live file that the bank is in, for identity, counters and clock.
        payload: The bank's encoded parts.
        seq: The bank's sequence number.
        origin: The bank's origin, in ticks.
    """
    codec, content = segment.compress(segment.join(payload))
    meta = {
        **about(view),
        "bank": seq,
        "origin": origin,
        "records": payload.n,
        "attributes": payload.m,
        "text_bytes": len(payload.texts),
        "codec": codec,
    }
    return segment.pack_block(segment.RECORDS, meta, content)


def of_open_ranges(view: Buffer) -> bytes | None:
    """What the process is inside of, as a block; None when nothing is open."""
    header = livefile.read_header(view)
    texts = _all_texts(view, header.layout)
    ended = _last_ends(view, header.layout)
    found = [
        _describe(slot, texts)
        for slot in livefile.read_slots(view, header)
        if (slot.start, slot.site, slot.track, slot.step) not in ended
    ]
    if not found:
        return None
    codec, content = segment.compress(json.dumps(found).encode())
    return segment.pack_block(segment.OPEN_RANGES, {**about(view), "codec": codec}, content)


def of_end(view: Buffer, ended: str) -> bytes:
    """The last block of a process: `exit` or `killed`."""
    return segment.pack_block(segment.END, {**about(view), "ended": ended})


def about(view: Buffer) -> dict[str, Any]:
    """The meta that every block has: identity, counters, clock, last heartbeat."""
    header = livefile.read_header(view)
    return {
        "identity": livefile.read_identity(view),
        "counters": livefile.read_counters(view),
        "clock": {
            "kind": header.clock,
            "ticks_per_ns": header.ticks_per_ns,
            "anchors": [list(anchor) for anchor in livefile.read_anchors(view)],
        },
        "heartbeat_ns": livefile.heartbeat_ns(view),
    }


def _all_texts(view: Buffer, layout: livefile.Layout) -> livefile.Texts:
    """The side tables of all banks together: ids of sites and stages hold for the life of a process."""
    merged = livefile.Texts({}, {}, {}, {})
    for bank in banks_in_order(view, layout):
        texts, _ = livefile.read_texts(bank.text, bank.salt)
        merged.sites.update(texts.sites)
        merged.stages.update(texts.stages)
    return merged


def banks_in_order(view: Buffer, layout: livefile.Layout) -> list[livefile.Bank]:
    """All banks in use, oldest first."""
    banks = (livefile.read_bank(view, layout, index) for index in range(layout.bank_count))
    return sorted((bank for bank in banks if bank is not None), key=lambda bank: bank.seq)


def _last_ends(view: Buffer, layout: livefile.Layout) -> set[tuple[int, int, int, int]]:
    """(start, site, track, step) of the newest records: a kill between record and slot must not show a range twice."""
    found = set()
    for bank in banks_in_order(view, layout):
        first = max(bank.count - 2 * records.ATTRIBUTE_LIMIT, 0)
        tail = records.WORDS.iter_unpack(bank.raw[first * records.RECORD_BYTES :])
        for w0, w1, w2 in tail:
            if records.kind_of(w2) == records.RANGE:
                record = records.unpack(w0, w1, w2)
                start = bank.origin + record.end - record.duration
                found.add((start, record.site, record.track, record.step))
    return found


def _describe(slot: livefile.Slot, texts: livefile.Texts) -> dict[str, Any]:
    site = texts.sites.get(slot.site, livefile.SiteText("?", "default", 0))
    return {
        "name": site.name,
        "domain": site.domain,
        "stage": texts.stages.get(slot.stage),
        "own_stage": bool(site.own_stage),
        "step": slot.step,
        "track": slot.track,
        "depth": slot.depth,
        "start": slot.start,
        "tid": slot.thread,
    }
