"""What processes were inside of: the ranges that are open in a live process, or were when it died or closed."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np

from ..errors import FormatError
from ..store import livefile, records, segment
from ..store.values import small_number, text_of, whole_number
from .folder import Damage, Folder
from .processes import BlockRef, Process
from .rows import ALL, IS_OPEN, NO_DURATION, Blocks, Chunk, Need, all_sources
from .sealed import Allowance, check_payload
from .selection import Selection
from .vocabulary import UNKNOWN_SITE, UNKNOWN_TEXT, Vocabulary

# A scaled duration is exact to this many ticks.
_SCALE_TICKS = 1 << records.SCALE_SHIFT


class UnfinishedRange(NamedTuple):
    """A range without an end. `start` in absolute ticks; `step` is `records.NO_STEP` where there is none."""

    site: livefile.SiteText
    stage: str | None
    start: int
    track: int
    step: int
    depth: int


def open_ranges(process: Process, blocks: Blocks, sealed: Folder, damage: list[Damage]) -> list[UnfinishedRange]:
    """What `process` is or was inside of, outermost first on each track."""
    ranges: list[UnfinishedRange] = []
    if process.open_block is not None:
        ranges += _from_block(process.open_block, blocks.allowance, sealed, damage)
    elif not process.ended:
        for slot in _still_open(process, blocks):
            site = process.texts.sites.get(slot.site, UNKNOWN_SITE)
            stage = process.texts.stages.get(slot.stage, UNKNOWN_TEXT) if slot.stage else None
            ranges.append(UnfinishedRange(site, stage, slot.start, slot.track, slot.step, slot.depth))
    return sorted(ranges, key=lambda r: (r.track, r.depth, r.start))


def is_asked_for(process: Process, range_: UnfinishedRange, chosen: Selection) -> bool:
    """Does it belong to what of a run is asked for?"""
    begin = process.clock.to_monotonic(np.array([range_.start], dtype=np.int64)) + np.int64(process.offset_ns)
    in_time = not chosen.has_time or bool(chosen.in_time(begin, np.array([NO_DURATION]))[0])
    return chosen.has(range_.step, range_.stage) and in_time


def _still_open(process: Process, blocks: Blocks) -> list[livefile.Slot]:
    """The copied slots without those whose record is there as well: ended meanwhile, or just before a kill."""
    if not process.slots:
        return []
    left = set(process.slots)
    first_bank = min((bank.seq for bank in process.banks), default=0)
    numbered = ((of.bank if isinstance(of, BlockRef) else of.seq, of) for of in all_sources(process))
    for columns, texts, *_ in blocks.whole((process, source) for bank, source in numbered if bank >= first_bank):
        process.learn_texts(livefile.Texts({**texts.sites, **process.texts.sites}, {}, {}, {}))
        for slot in list(left):
            late = columns.end - columns.duration - np.int64(slot.start)
            same = (columns.site == slot.site) & (columns.track == slot.track) & (columns.step == slot.step)
            if (same & (late >= 0) & (late < np.where(columns.scaled, _SCALE_TICKS, 1))).any():
                left.discard(slot)
    return sorted(left)


def _from_block(ref: BlockRef, allowance: Allowance, sealed: Folder, damage: list[Damage]) -> list[UnfinishedRange]:
    try:
        packed = sealed.read(ref.file, ref.offset, ref.size)
        raw = segment.decompress_stream(str(ref.meta.get("codec")), check_payload(packed, ref), allowance.most(ref))
        allowance.grant(ref, len(raw))
        listed = json.loads(raw)
        if not isinstance(listed, list):
            raise FormatError("a block of open ranges that is no list")
    except (FormatError, OSError, ValueError, RecursionError, MemoryError) as exc:
        Damage.because(sealed.path_of(ref.file), exc, ref.offset, ref.size).note_in(damage)
        return []
    ranges = []
    for get in (fields.get for fields in listed if isinstance(fields, dict)):
        stage, step = get("stage"), get("step")
        ranges.append(UnfinishedRange(
            livefile.SiteText(text_of(get("name")), text_of(get("domain")), 1 if get("own_stage") else 0),
            text_of(stage) if isinstance(stage, str) else None, whole_number(get("start")),
            (small_number(get("track")) or 0) & records.TRACK_MAX,
            step if isinstance(step, int) and 0 <= step <= records.STEP_MAX else records.NO_STEP,
            min(small_number(get("depth")) or 0, records.DEPTH_MAX),
        ))  # fmt: skip
    return ranges


def as_chunk(ranges: list[tuple[Process, UnfinishedRange]], vocabulary: Vocabulary, need: Need = ALL) -> Chunk:
    """Open ranges as rows, like those that ended."""
    chunk = Chunk(len(ranges), need)
    for process, range_ in ranges:
        start = process.clock.to_monotonic(np.array([range_.start], dtype=np.int64))
        chunk.add(
            process=process.index, track=range_.track, depth=range_.depth, step=range_.step, flags=IS_OPEN,
            site=vocabulary.site_code(range_.site),
            stage=0 if range_.stage is None else vocabulary.stage_code(range_.stage),
            start_ns=start + np.int64(process.offset_ns), duration_ns=NO_DURATION,
        )  # fmt: skip
    return chunk
