"""Traces of torch's profiler in a run: how often the range of the stage is in them."""

from __future__ import annotations

import json
from pathlib import Path


def ranges_of(run: Path, request: str, stage: str, rank: int) -> int:
    """How often the trace of one rank's session, of this request, holds the stage's own range."""
    sessions = sorted((run / "profiles").glob(f"{stage}/step*/rank{rank}/*/session.json"))
    documents = [(file.parent, json.loads(file.read_text(encoding="utf-8"))) for file in sessions]
    (trace,) = (folder / of["output"] for folder, of in documents if of["request"] == request and of["output"])
    assert trace.name.endswith(".pt.trace.json")
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    return sum(event.get("name") == stage and event.get("ph") == "X" for event in events)
