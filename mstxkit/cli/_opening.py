"""How to open what a request recorded: which viewer, which path, what to look at; as lines that end a command.

A tool that reads a folder takes one profile of a rank in it. So each window of a request has a command of its own.
Which recipe of msprof-analyze works depends on what the profiles hold; facts of msprof-analyze 26.2.0 and MindStudio
Insight of July 2026.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Iterable, Iterator

from ..parsing import kinds
from ..reading.report.escape import for_terminal
from ..store import documents, layout
from ..store.session_file import read_sessions
from ..store.values import group_by

_SHOWN_AT_MOST = 4
_TRACE = ".pt.trace.json"
PERFETTO = "https://ui.perfetto.dev"
_MSTX_SUM = ("mstx_sum --export_type text", "MstxSum/all_cann_stats.csv: a line for each stage, MaxRank is the slowest")
_TIMELINE = "  look at the stage's range, then at the kernels below it and the gaps between them, rank beside rank"
_ALL = ("all", "cluster_analysis.db, ClusterStepTraceTime: what each rank computes and waits")
_KERNELS = ("compute_op_sum", "cluster_analysis.db, ComputeOpAllRankStats: where the device's time goes")


def describe_opening(run: Path, run_id: str, requests: Iterable[str]) -> Iterator[str]:
    """How to open what these requests recorded; their data as they lie there now."""
    wanted = set(filter(None, requests))
    kept = [session for session in read_sessions(run, run_id) if session.key[0] in wanted]
    for request, recorded in group_by(kept, lambda session: session.key[0]).items():
        places = [run / place for place in dict.fromkeys(session.place for session in recorded)]
        raws = [raw for place in places for raw in _list_raw(place)]
        parsed = [raw for raw in raws if (raw / kinds.OUTPUT).is_dir()]
        if len(parsed) < len(raws):
            yield f"Parse it, on any host with CANN: mstxkit profiles {_quote_path(run)} --analyse --request {request}"
        if parsed:
            top = run / layout.PROFILES / layout.stage_in_names(request)
            where = top if all(top in (place, place.parent) for place in places) else run / layout.PROFILES
            yield f"Timeline: MindStudio Insight, Import Data, {_quote_path(where)}"
            yield _TIMELINE
        commands = list(filter(None, map(_analyse_command, places)))
        traces = [place / name for place in places for name in documents.names_in(place, _TRACE)]
        for alike in (commands, [f"Timeline: open {_quote_path(trace)} in {PERFETTO}" for trace in traces]):
            yield from alike[:_SHOWN_AT_MOST]
            if len(alike) > _SHOWN_AT_MOST:
                yield f"… and {len(alike) - _SHOWN_AT_MOST} more like these"
        stored = [session.document.get("stored") for session in recorded]
        for host in sorted({str(place.get("host")) for place in stored if isinstance(place, dict)}):
            yield f"On the disk of {for_terminal(host)}: mstxkit profiles {_quote_path(run)} --fetch, there"


def _analyse_command(place: Path) -> str:
    """The command of msprof-analyze for the profiles in a folder; empty where none of its recipes reads them."""
    output = next((raw / kinds.OUTPUT for raw in _list_raw(place) if (raw / kinds.OUTPUT).is_dir()), None)
    if output is None:
        return ""
    names = set(os.listdir(output))
    mode, look = _ALL
    if not names & {"analysis.db", "step_trace_time.csv"}:
        named = (output / name for name in names for kind in kinds.KINDS.values() if kind.database.fullmatch(name))
        database = next(filter(Path.is_file, named), None)
        tables = set() if database is None else _filled_tables(database)
        mode, look = _KERNELS if "COMPUTE_TASK_INFO" in tables else ("", "")
        if "MSTX_EVENTS" in tables and "TASK" not in tables:  # beside TASK it fails for every range of the host alone
            mode, look = _MSTX_SUM
    if not mode:
        return ""
    command = f"msprof-analyze -m {mode} -d {_quote_path(place)}"
    return f"Ranks compared: {command}\n  look at cluster_analysis_output/{look}"


def _filled_tables(file: Path) -> set[str]:
    """Tables of a database that hold anything; it is not changed, nor locked."""
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as base:
            names = [name for (name,) in base.execute("select name from sqlite_master where type = 'table'")]
            quoted = {name: name.replace('"', '""') for name in names}
            return {n for n in names if base.execute(f'select 1 from "{quoted[n]}" limit 1').fetchone() is not None}
    except sqlite3.Error:
        return set()


def _list_raw(place: Path) -> list[Path]:
    return [place / name for name in documents.names_in(place) if kinds.kind_of(name) and (place / name).is_dir()]


def _quote_path(path: Path) -> str:
    return for_terminal(shlex.quote(str(path.absolute())))
