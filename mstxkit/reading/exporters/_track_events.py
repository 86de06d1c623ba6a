"""Track events of Perfetto as bytes: begins, ends and instants, a whole piece of a run at once.

Source: perfetto v52, protos/perfetto/trace/trace_packet.proto, track_event/track_event.proto and
debug_annotation.proto. An end closes the innermost open slice of its track.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from ...store.records import NO_STEP
from ._protobuf import (
    LENGTH,
    WORD_BYTES,
    Form,
    Part,
    encode_block,
    encode_number,
    encode_tag,
    encode_varint,
    size_of,
    width_of,
)

Columns = dict[str, npt.NDArray[Any]]
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
NO_BUSY = -1

# TracePacket
_PACKET, TIMESTAMP, _SEQUENCE, _FLAGS, TRACK_EVENT = 1, 8, 10, 13, 11
INTERNED, DESCRIPTOR, SNAPSHOT, COMPRESSED = 12, 60, 6, 50
CLEARED, NEEDS_STATE = 1, 2
# TrackEvent
TYPE, TRACK, NAME, CATEGORY, _ANNOTATION = 9, 11, 10, 3, 4
_COUNTER_VALUE, _FLOWS, _LAST_FLOWS = 44, 47, 48
# DebugAnnotation
_KEY, BOOL, INT, INTERNED_TEXT, _JSON = 1, 2, 4, 17, 9
# Interned names of annotations, the same in all sequences.
STEP, STAGE, ERROR, BUSY, ATTRIBUTES = 1, 2, 3, 4, 5
ANNOTATIONS = {STEP: "step", STAGE: "stage", ERROR: "error", BUSY: "busy_ns", ATTRIBUTES: "attributes"}
_STEP_BIT, _STAGE_BIT, _ERROR_BIT, _BUSY_BIT, _TAIL_BIT = 4, 8, 16, 32, 64
_ROWS_AT_ONCE, _FORMS = 1 << 14, 128
_ATTRIBUTES_HEAD = encode_number(_KEY, ATTRIBUTES) + encode_tag(_JSON, LENGTH)
# Of a message that holds something of any length: as protozero writes it.
_LONG = 4


def encode_packet(content: bytes) -> bytes:
    """One packet of a trace."""
    return encode_block(_PACKET, content)


def on_sequence(sequence: int, content: bytes, flags: int = 0) -> bytes:
    """A packet of a sequence."""
    return encode_packet(
        encode_number(_SEQUENCE, sequence) + (encode_number(_FLAGS, flags) if flags else b"") + content
    )


def encode_annotation(key: int, field: int, value: int) -> bytes:
    """One argument of a slice."""
    return encode_block(_ANNOTATION, encode_number(_KEY, key) + encode_number(field, value))


def attributes_tail(json_text: str) -> bytes:
    """Attributes as the end of a track event: `debug.attributes.<name>` in SQL."""
    content = json_text.encode("utf-8", "backslashreplace")
    inner = _ATTRIBUTES_HEAD + encode_varint(len(content))
    return b"".join((encode_tag(_ANNOTATION, LENGTH), encode_varint(len(inner) + len(content)), inner, content))


def flows_tail(flows: Iterable[int], is_end: bool) -> bytes:
    """Flows that begin at a track event, or end there, as its end."""
    field = encode_tag(_LAST_FLOWS if is_end else _FLOWS, 1)
    return b"".join(field + flow.to_bytes(8, "little") for flow in flows)


def encode_counters(values: npt.NDArray[np.float64], **numbers: npt.NDArray[Any]) -> bytes:
    """Values of counters, as packets; of each `sequence`, `track` and `at`."""
    widths = {name: width_of(int(numbers[name].max())) for name in numbers}
    event: list[Part] = [encode_number(TYPE, COUNTER), encode_tag(TRACK), ("track", widths["track"])]
    event += [encode_tag(_COUNTER_VALUE, 1), bytes(8)]
    whole: list[Part] = [encode_tag(TIMESTAMP), ("at", widths["at"])]
    whole += [encode_tag(_SEQUENCE), ("sequence", widths["sequence"])]
    whole += [encode_tag(TRACK_EVENT, LENGTH), encode_varint(size_of(event)), *event]
    made = Form([encode_tag(_PACKET, LENGTH), encode_varint(size_of(whole)), *whole]).fill(numbers, len(values))
    made[:, -8:] = values.astype("<f8").view(np.uint8).reshape(-1, 8)
    return made.tobytes()


def encode_events(
    events: Columns, rows: Columns, tails: Mapping[int, bytes]
) -> tuple[memoryview, npt.NDArray[np.int64]]:
    """Packets of track events, and where each begins (one more place than events: the end).

    Args:
        events: `at` (ns from the trace's zero), `kind`, and `row`: the place of what it is of in `rows`.
        rows: `sequence`, `track` (its uuid), `name`, `category` and `stage` (interned; stage 0: none), `step`, `error`,
            `busy` in ns, or NO_BUSY, `tail` (0: none).
        tails: What the message of an event ends in.

    *Cost*: about 0.1 microseconds an event.
    """
    count, row = len(events["at"]), events["row"]
    if not count:
        return memoryview(b""), np.zeros(1, dtype=np.int64)
    # What the begin of each row has, in bits.
    more = (rows["step"] != NO_STEP) * _STEP_BIT | (rows["stage"] != 0) * _STAGE_BIT | (rows["tail"] != 0) * _TAIL_BIT
    more |= (rows["error"] != 0) * _ERROR_BIT | (rows["busy"] != NO_BUSY) * _BUSY_BIT
    forms = np.where(events["kind"] == END, END, more[row] | events["kind"])
    with_tail = np.flatnonzero(forms & _TAIL_BIT)
    ends = [tails[tail] for tail in rows["tail"][row[with_tail]].tolist()]
    longer = np.zeros(len(rows["tail"]) if ends else 0, dtype=np.int64)
    longer[row[with_tail]] = [len(end) for end in ends]
    made = _Forms(_measure_widths(events, rows), events, {**rows, "longer": longer})
    pieces = [made.fixed(forms, first) for first in range(0, count, _ROWS_AT_ONCE)]
    sizes = np.concatenate([size for _, size in pieces])
    fixed = np.concatenate([content for content, _ in pieces]).view(np.uint8).data
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    if not ends:
        return fixed, offsets
    edges = [0, *offsets[with_tail + 1].tolist()]
    parts = [part for begin, end, tail in zip(edges, edges[1:], ends) for part in (fixed[begin:end], tail)]
    whole = b"".join([*parts, fixed[edges[-1] :]])
    offsets[1:] += np.cumsum(np.where(forms & _TAIL_BIT != 0, longer[row], 0))
    return memoryview(whole), offsets


def _measure_widths(events: Columns, rows: Columns) -> dict[str, int]:
    steps = rows["step"][rows["step"] != NO_STEP]
    widths = {name: width_of(int(rows[name].max())) for name in rows if name not in ("step", "error", "tail")}
    return {**widths, "at": width_of(int(events["at"].max())), "step": width_of(int(steps.max(initial=0)))}


class _Forms:
    """The messages of a piece: those of a form have one length, of whole words."""

    def __init__(self, widths: dict[str, int], events: Columns, rows: Columns) -> None:
        self._widths, self._events, self._rows = widths, events, rows
        self._made: dict[int, tuple[Form, int, int]] = {}

    def fixed(self, forms: npt.NDArray[np.int64], first: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """What all messages of a form have alike, in the order of the events, and the bytes of each."""
        these = forms[first : first + _ROWS_AT_ONCE]
        words, filled = np.zeros(_FORMS, dtype=np.int64), []
        for form in np.flatnonzero(np.bincount(these)).tolist():
            at = np.flatnonzero(these == form)
            filled.append((at, self._fill_form(form, at + first)))
            words[form] = filled[-1][1].shape[1]
        ends = np.cumsum(words[these])
        whole = np.empty(ends[-1], dtype="<u8")
        for at, parts in filled:
            begins = ends[at] - parts.shape[1]
            for place in range(parts.shape[1]):
                whole[begins + place] = parts[:, place]
        return whole, words[these] * WORD_BYTES

    def _fill_form(self, form: int, which: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """(events, words) those of a form."""
        whole, inner, outer = self._made.get(form) or self._made.setdefault(form, self._make_form(form))
        row, values = self._events["row"][which], {"at": self._events["at"][which]}
        values |= {name: self._rows[name][row] for name, _, _ in whole.places if name in self._rows}
        if form & _TAIL_BIT:
            values |= {"inner": self._rows["longer"][row] + inner, "outer": self._rows["longer"][row] + outer}
        return whole.fill(values, len(which)).view("<u8")

    def _make_form(self, form: int) -> tuple[Form, int, int]:
        """Of whole words: the number of the sequence is as long as that needs."""
        message, is_long = _write_event(form, self._widths), bool(form & _TAIL_BIT)
        inner: Part = ("inner", _LONG) if is_long else encode_varint(size_of(message))
        at: list[Part] = [encode_tag(TIMESTAMP), ("at", self._widths["at"])]
        event: list[Part] = [encode_number(_FLAGS, NEEDS_STATE), encode_tag(TRACK_EVENT, LENGTH), inner, *message]
        parts = [*at, *event] if is_long else [*event, *at]
        used = 2 + size_of(parts) + self._widths["sequence"] + (_LONG if is_long else 1)
        parts[:0] = [encode_tag(_SEQUENCE), ("sequence", self._widths["sequence"] + -used % WORD_BYTES)]
        size = size_of(parts)
        outer: Part = ("outer", _LONG) if is_long else encode_varint(size)
        return Form([encode_tag(_PACKET, LENGTH), outer, *parts]), size_of(message), size


def _write_event(form: int, widths: dict[str, int]) -> list[Part]:
    """What differs from event to event is last: it packs best beside the time of the next one."""
    kind = form & 3
    parts: list[Part] = [encode_number(TYPE, kind), encode_tag(TRACK), ("track", widths["track"])]
    if form & _STEP_BIT:
        parts += _write_annotation(STEP, encode_tag(INT), ("step", widths["step"]))
    if form & _STAGE_BIT:
        parts += _write_annotation(STAGE, encode_tag(INTERNED_TEXT), ("stage", widths["stage"]))
    if form & _ERROR_BIT:
        parts += _write_annotation(ERROR, encode_number(BOOL, 1))
    if kind != END:
        parts += [encode_tag(CATEGORY), ("category", widths["category"])]
    if form & _BUSY_BIT:
        parts += _write_annotation(BUSY, encode_tag(INT), ("busy", widths["busy"]))
    if kind != END:
        parts += [encode_tag(NAME), ("name", widths["name"])]
    return parts


def _write_annotation(key: int, *value: Part) -> list[Part]:
    content = [encode_number(_KEY, key), *value]
    return [encode_tag(_ANNOTATION, LENGTH), encode_varint(size_of(content)), *content]
