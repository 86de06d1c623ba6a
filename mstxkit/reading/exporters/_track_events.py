"""Track events of Perfetto as bytes: begins, ends and instants, a whole piece of a run at once.

Source: perfetto v52, protos/perfetto/trace/trace_packet.proto, track_event/track_event.proto and
debug_annotation.proto. An end closes the innermost open slice of its track.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from ...store.records import NO_STEP
from ._protobuf import LENGTH, Form, Part, block, number, size_of, tag, varint, width_of

Columns = dict[str, npt.NDArray[Any]]
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
NO_BUSY = -1

# TracePacket
_PACKET, TIMESTAMP, _SEQUENCE, _FLAGS, TRACK_EVENT = 1, 8, 10, 13, 11
INTERNED, DEFAULTS, DESCRIPTOR, SNAPSHOT, COMPRESSED = 12, 59, 60, 6, 50
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
_ROWS_AT_ONCE = 1 << 13
_ATTRIBUTES_HEAD = number(_KEY, ATTRIBUTES) + tag(_JSON, LENGTH)
# Of a message that holds something of any length: as protozero writes it.
_LONG = 4


def packet(content: bytes) -> bytes:
    """One packet of a trace."""
    return block(_PACKET, content)


def on_sequence(sequence: int, content: bytes, flags: int = 0) -> bytes:
    """A packet of a sequence."""
    return packet(number(_SEQUENCE, sequence) + (number(_FLAGS, flags) if flags else b"") + content)


def annotation(key: int, field: int, value: int) -> bytes:
    """One argument of a slice."""
    return block(_ANNOTATION, number(_KEY, key) + number(field, value))


def attributes_tail(json_text: str) -> bytes:
    """Attributes as the end of a track event: `debug.attributes.<name>` in SQL."""
    content = json_text.encode("utf-8", "backslashreplace")
    inner = _ATTRIBUTES_HEAD + varint(len(content))
    return b"".join((tag(_ANNOTATION, LENGTH), varint(len(inner) + len(content)), inner, content))


def flows_tail(flows: Iterable[int], is_end: bool) -> bytes:
    """Flows that begin at a track event, or end there, as its end."""
    field = tag(_LAST_FLOWS if is_end else _FLOWS, 1)
    return b"".join(field + flow.to_bytes(8, "little") for flow in flows)


def counters(values: npt.NDArray[np.float64], **numbers: npt.NDArray[Any]) -> bytes:
    """Values of counters, as packets; of each `sequence`, `track` and `at`."""
    widths = {name: width_of(int(numbers[name].max())) for name in numbers}
    event: list[Part] = [
        number(TYPE, COUNTER),
        tag(TRACK),
        ("track", widths["track"]),
        tag(_COUNTER_VALUE, 1),
        bytes(8),
    ]
    head: list[Part] = [tag(TIMESTAMP), ("at", widths["at"]), tag(_SEQUENCE), ("sequence", widths["sequence"])]
    whole: list[Part] = [*head, tag(TRACK_EVENT, LENGTH), varint(size_of(event)), *event]
    made = Form([tag(_PACKET, LENGTH), varint(size_of(whole)), *whole]).fill(numbers, len(values))
    made[:, -8:] = values.astype("<f8").view(np.uint8).reshape(-1, 8)
    return made.tobytes()


def encode(events: Columns, tails: Mapping[int, bytes]) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Packets of track events, and where each begins (one more place than events: the end).

    Args:
        events: `at` (ns from the trace's zero), `kind`, `sequence`, `track` (its uuid), `name`, `category` and `stage`
            (interned; stage 0: none), `step`, `error`, `busy` in ns, or NO_BUSY, `tail` (0: none).
        tails: What the message of an event ends in.

    *Cost*: about 0.15 microseconds an event.
    """
    count = len(events["at"])
    if not count:
        return b"", np.zeros(1, dtype=np.int64)
    widths = _widths(events)
    forms = _forms_of(events)
    longer = np.zeros(count, dtype=np.int64)
    with_tail = np.flatnonzero(forms & _TAIL_BIT)
    ends = [tails[tail] for tail in events["tail"][with_tail].tolist()]
    longer[with_tail] = [len(end) for end in ends]
    columns = {**events, "longer": longer}
    pieces = [_fixed(columns, forms, widths, first) for first in range(0, count, _ROWS_AT_ONCE)]
    sizes = np.concatenate([size for _, size in pieces])
    fixed = b"".join(content for content, _ in pieces)
    offsets = np.concatenate(([0], np.cumsum(sizes + longer)))
    return _with_tails(fixed, np.cumsum(sizes)[with_tail].tolist(), ends), offsets


def _with_tails(fixed: bytes, places: list[int], tails: list[bytes]) -> bytes:
    """Bytes with a tail put in at each of these places."""
    if not places:
        return fixed
    parts, begin = [], 0
    for end, tail in zip(places, tails):
        parts += [fixed[begin:end], tail]
        begin = end
    return b"".join([*parts, fixed[begin:]])


def _widths(events: Columns) -> dict[str, int]:
    names = ("at", "sequence", "track", "name", "category", "stage", "busy")
    steps = events["step"][events["step"] != NO_STEP]
    return {**{name: width_of(int(events[name].max())) for name in names}, "step": width_of(int(steps.max(initial=0)))}


def _forms_of(events: Columns) -> npt.NDArray[np.int64]:
    kind = events["kind"].astype(np.int64)
    more = (events["step"] != NO_STEP) * _STEP_BIT | (events["stage"] != 0) * _STAGE_BIT
    more |= (events["error"] != 0) * _ERROR_BIT | (events["busy"] != NO_BUSY) * _BUSY_BIT
    return np.where(kind == END, kind, kind | more | (events["tail"] != 0) * _TAIL_BIT)


def _fixed(
    events: Columns, forms: npt.NDArray[np.int64], widths: dict[str, int], first: int
) -> tuple[bytes, npt.NDArray[np.int64]]:
    """What all messages of a form have alike, in the order of the events."""
    part = slice(first, first + _ROWS_AT_ONCE)
    these = forms[part]
    filled = []
    for form in np.unique(these).tolist():
        at = np.flatnonzero(these == form)
        filled.append((at, _filled({name: values[part][at] for name, values in events.items()}, form, widths)))
    sizes = np.empty(len(these), dtype=np.int64)
    widest = max(made.shape[1] for _, made in filled)
    rows = np.empty((len(these), widest), dtype=np.uint8)
    for at, made in filled:
        sizes[at] = made.shape[1]
        rows[at, : made.shape[1]] = made
    return rows[np.arange(widest) < sizes[:, None]].tobytes(), sizes


def _filled(events: Columns, form: int, widths: dict[str, int]) -> npt.NDArray[np.uint8]:
    message = _event(form, widths)
    is_long = bool(form & _TAIL_BIT)
    head: list[Part] = [tag(TIMESTAMP), ("at", widths["at"]), tag(_SEQUENCE), ("sequence", widths["sequence"])]
    head += [number(_FLAGS, NEEDS_STATE), tag(TRACK_EVENT, LENGTH)]
    inner: Part = ("inner", _LONG) if is_long else varint(size_of(message))
    size = size_of([*head, inner, *message])
    outer: Part = ("outer", _LONG) if is_long else varint(size)
    made = Form([tag(_PACKET, LENGTH), outer, *head, inner, *message])
    longer = events["longer"]
    return made.fill({**events, "inner": longer + size_of(message), "outer": longer + size}, len(longer))


def _event(form: int, widths: dict[str, int]) -> list[Part]:
    kind = form & 3
    parts: list[Part] = [number(TYPE, kind), tag(TRACK), ("track", widths["track"])]
    if kind != END:
        parts += [tag(NAME), ("name", widths["name"]), tag(CATEGORY), ("category", widths["category"])]
    if form & _STEP_BIT:
        parts += _annotation(STEP, tag(INT), ("step", widths["step"]))
    if form & _STAGE_BIT:
        parts += _annotation(STAGE, tag(INTERNED_TEXT), ("stage", widths["stage"]))
    if form & _ERROR_BIT:
        parts += _annotation(ERROR, number(BOOL, 1))
    if form & _BUSY_BIT:
        parts += _annotation(BUSY, tag(INT), ("busy", widths["busy"]))
    return parts


def _annotation(key: int, *value: Part) -> list[Part]:
    content = [number(_KEY, key), *value]
    return [tag(_ANNOTATION, LENGTH), varint(size_of(content)), *content]
