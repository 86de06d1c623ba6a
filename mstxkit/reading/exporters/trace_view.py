"""`trace_view.json` as MindStudio Insight reads it: a profile of torch_npu in text form for each rank.

Prefer `ascend-db`: it is smaller and opens faster. Perfetto opens these files, and draws them wrongly: their times are
texts of absolute microseconds; give it `perfetto`.

Source: msinsight 4e16fca1f: a list at the top, `ph` of X, M, I and few more, `ts` a text in microseconds with three
decimals, `dur` a number; a process that is labelled CPU and is not called Python or CANN. msprof-analyze 26.2.0 takes a
top-level object for a trace of a GPU.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path

from ..report.escape import for_json
from ..run import Run
from . import FOLDER, Exporter, _rank_files
from ._rank_files import clean_name, how_to_import, profile_folder, write_beside
from ._rank_rows import RankRowReader, RankRows
from .chrome import name_process, trace_pids, write_microseconds


def write_traces(run: Run, folder: Path) -> int:
    """Write `run` into an empty folder; the number of ranges and marks. *Cost*: about three microseconds a range."""
    processes = run.processes()
    files = _rank_files.of_run(processes)
    paths = {file.number: profile_folder(folder, file) / "trace_view.json" for file in files}
    numbers = {process: file.number for file in files for process in file.processes}
    labels, pids = processes["label"].to_list(), trace_pids(processes)
    for order, process in enumerate(sorted(numbers)):
        with open(paths[numbers[process]], "a", encoding="utf-8") as file:
            names = name_process(pids[process], clean_name(labels[process]), "CPU", order)
            file.write((",\n" if file.tell() else "[\n") + names)
    reader, counts = RankRowReader(run), Counter[int]()
    for rows in chain(reader.open_marks(), reader.rows()):
        _append_rows(paths[numbers[rows.process]], rows, reader.texts, pids[rows.process])
        counts[numbers[rows.process]] += len(rows.start)
    for path in paths.values():
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n]\n")
    write_beside(folder, files, processes, counts, reader.shown)
    return sum(counts.values())


def _append_rows(path: Path, rows: RankRows, texts: list[str], pid: int) -> None:
    shown, columns = [for_json(clean_name(text)) for text in texts], (column.tolist() for column in rows[1:])
    with open(path, "a", encoding="utf-8") as file:
        for start, end, is_mark, name, domain, thread, _ in zip(*columns):
            when = f'"pid":{pid},"tid":{thread},"ts":"{write_microseconds(start)}"'
            kind = '"ph":"I","s":"t"' if is_mark else f'"ph":"X","dur":{write_microseconds(end - start)}'
            arguments = f'{{"event_type":"{"marker" if is_mark else "start/end"}","domain":{shown[domain]}}}'
            file.write(f',\n{{"name":{shown[name]},{kind},{when},"args":{arguments}}}')


EXPORTER = Exporter("_trace_view", write_traces, form=FOLDER, advice=how_to_import)
