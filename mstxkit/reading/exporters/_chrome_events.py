"""Chrome trace events as JSON texts: their words, and those of one range, of one mark, of a name."""

from __future__ import annotations

from typing import NamedTuple

from ...store.records import TRACK_MAX
from ..lines import Line
from ..report.escape import for_json
from ..suspended import COALESCED


class _JsonTexts(dict[str, str]):
    """Texts as JSON, each encoded once."""

    def __missing__(self, text: str) -> str:
        return self.setdefault(text, for_json(text))


class RangeRow(NamedTuple):
    """What is drawn of a range or mark. `duration_ns`: None of what is open; `stage`: its key."""

    process: int
    track: int
    depth: int
    domain: str
    name: str
    start_ns: int
    duration_ns: int | None
    busy_ns: int | None
    step: int | None
    stage: str | None
    error: bool | None
    attributes: str | None

    @property
    def is_coalesced(self) -> bool:
        """Does it stand for several calls?"""
        return self.attributes is not None and self.attributes.startswith(COALESCED)


class Events:
    """Makes events; times in ns, from the run's first instant `base_ns`; `pids`: by process."""

    def __init__(self, pids: list[int], base_ns: int) -> None:
        self._pids, self._base_ns = pids, base_ns
        self._texts = _JsonTexts()

    def on_track(self, row: RangeRow) -> str:
        """A range on its track."""
        if row.duration_ns is None:
            return f'{{"ph":"B",{self._about(row)}}}'
        return f'{{"ph":"X",{self._about(row)},"dur":{microseconds(row.duration_ns)}}}'

    def begin(self, row: RangeRow, line: Line) -> str:
        """The begin of a range on a line beside the track, where the domain of the first range stands for all."""
        return f'{{"ph":"b","id2":{{"local":{line.number}}},{self._about(row, line.domain)}}}'

    def end(self, row: RangeRow, line: Line) -> str:
        """Its end."""
        assert row.duration_ns is not None
        end_ns = row.start_ns + row.duration_ns
        return f'{{"ph":"e","id2":{{"local":{line.number}}},{self._head(row, line.domain, end_ns)}}}'

    def mark(self, row: RangeRow, line: Line) -> str:
        """An instant on its track, or on a line beside it."""
        if not line.number:
            return f'{{"ph":"i","s":"t",{self._about(row)}}}'
        return f'{{"ph":"n","id2":{{"local":{line.number}}},{self._about(row, line.domain)}}}'

    def _about(self, row: RangeRow, category: str | None = None) -> str:
        texts = self._texts
        parts = [] if category in (None, row.domain) else [f'"domain":{texts[row.domain]}']
        parts += [] if row.step is None else [f'"step":{row.step}']
        parts += [] if row.stage is None else [f'"stage":{texts[row.stage]}']
        parts += ['"error":true'] if row.error else []
        parts += [] if row.busy_ns is None else [f'"busy_us":{microseconds(row.busy_ns)}']
        parts += [] if row.attributes is None else [f'"attributes":{row.attributes}']
        return f'{self._head(row, category, row.start_ns)},"args":{{{",".join(parts)}}}'

    def _head(self, row: RangeRow, category: str | None, at_ns: int) -> str:
        names = f'"name":{self._texts[row.name]},"cat":{self._texts[row.domain if category is None else category]}'
        pid = self._pids[row.process]
        return f'{names},"pid":{pid},"tid":{trace_tid(pid, row.track)},"ts":{microseconds(at_ns - self._base_ns)}'


def trace_tid(pid: int, track: int) -> int:
    """A track's number. The thread with its process's number would be the same as thread 0, the main one."""
    return track if track != pid else track + TRACK_MAX + 1


def metadata(kind: str, pid: int, tid: int = 0, **arguments: str | int) -> str:
    """A name, or a place in the order, of a process or of one of its tracks."""
    members = ",".join(f'"{key}":{for_json(of) if isinstance(of, str) else of}' for key, of in arguments.items())
    return f'{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"args":{{{members}}}}}'


def microseconds(ns: int) -> str:
    """`ns` in microseconds, all digits."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"
