"""The tracks of a Perfetto trace: processes, in each its threads, below a thread its tasks, and lines beside them."""

from __future__ import annotations

import heapq
from itertools import count

import polars as pl

from .. import labels
from ..lines import OPEN_NS
from . import _packets
from ._nesting import TRACK_BITS
from ._packets import Packets
from ._slices import RangeRow
from .chrome import trace_tid

# Sequence 0 is nobody's; 1 is that of packets without one.
_FIRST_SEQUENCE = 2
SAMPLES = "samples, one by one"


class Places:
    """Gives each range its track, and describes each track before it is used.
    `processes`, `tracks`: tables of the run; `pids`: the number that a trace has for each process.
    """

    def __init__(self, packets: Packets, processes: pl.DataFrame, tracks: pl.DataFrame, pids: list[int]) -> None:
        self._packets, self._pids, self._next_uuid = packets, pids, count(1).__next__
        self.process = [self._next_uuid() for _ in pids]
        self._of_lane: dict[int, int] = {}
        # Per parent and name: lines that may be used again, and when what is on them begins; the latest first.
        self._free: dict[tuple[int, str], list[tuple[int, int]]] = {}
        self._of_line: dict[int, int] = {}
        self._at_process = -1
        self._below: dict[tuple[int, str], int] = {}
        for order, (uuid, row) in enumerate(zip(self.process, processes.iter_rows(named=True))):
            where = f"{row['host']}:{row['pid']} {row['state']}"
            packets.add(_packets.process_track(uuid, pids[order], row["label"], where, order))
        rows = tracks.to_dicts()
        names, threads = labels.of_tracks(rows), dict[tuple[int, int], int]()
        for order, at in enumerate(labels.order_of_tracks(rows)):
            row, uuid = rows[at], self._next_uuid()
            lane, thread = row["process"] << TRACK_BITS | row["track"], (row["process"], row["thread"])
            self._of_lane[lane] = uuid
            if row["is_task"] and thread in threads:
                packets.add(_packets.plain_track(uuid, threads[thread], names[at], order))
                continue
            self._describe_thread(lane, names[at], order)
            threads.setdefault(thread, uuid)

    def _describe_thread(self, lane: int, name: str, order: int) -> None:
        process, track = lane >> TRACK_BITS, lane & (1 << TRACK_BITS) - 1
        pid = self._pids[process]
        about = (self._of_lane[lane], self.process[process], pid, trace_tid(pid, track), name, order)
        self._packets.add(_packets.thread_track(*about))

    def sequence(self, process: int) -> int:
        """The number of a process's packets."""
        return process + _FIRST_SEQUENCE

    def of_lane(self, lane: int) -> int:
        """The track of a lane; one that nothing describes is a thread that has no name."""
        if lane not in self._of_lane:
            track, self._of_lane[lane] = lane & (1 << TRACK_BITS) - 1, self._next_uuid()
            self._describe_thread(lane, f"track {track}", track)
        return self._of_lane[lane]

    def of_line(self, row: RangeRow, line: int) -> int:
        """The track of a line beside a lane: called by its outermost range, which is the first to be asked for."""
        if row.process != self._at_process:
            self._of_line, self._at_process = {}, row.process
        if line not in self._of_line:
            self._of_line[line] = self.alone(row, row.name, self.process[row.process])
        return self._of_line[line]

    def alone(self, row: RangeRow, name: str, parent: int) -> int:
        """A track of that name on which nothing else is during this range; ranges come from the last end on."""
        end = OPEN_NS if row.duration_ns is None else row.start_ns + row.duration_ns
        free = self._free.setdefault((parent, name), [])
        if free and -free[0][0] > end:
            uuid = heapq.heappop(free)[1]
        else:
            uuid = self._next_uuid()
            self._packets.add(_packets.plain_track(uuid, parent, name))
        heapq.heappush(free, (-row.start_ns, uuid))
        return uuid

    def track_below(self, process: int, name: str, order: int = 0, unit: str = "") -> int:
        """The one track of that name below a process; with a `unit`, of a counter."""
        if (process, name) not in self._below:
            self._below[process, name] = uuid = self._next_uuid()
            self._packets.add(_packets.plain_track(uuid, self.process[process], name, order, unit))
        return self._below[process, name]
