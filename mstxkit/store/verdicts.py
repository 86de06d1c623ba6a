"""`verdicts/<who>.<life>.jsonl`: what was judged of a job, a line each, appended by whoever judges it.

A line with the id of an earlier one replaces it: a verdict grows with its evidence, and is withdrawn when that is gone.
Anybody with this user's rights may have written there: what is no verdict is left out.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Iterable, Mapping, NamedTuple

from . import documents, judge_files, layout, values
from .values import finite_number, small_number, step_number, table_of, text_of, whole_number

KINDS = (
    "compute", "input", "communication", "link", "imbalance", "jitter", "hang", "all_slow", "serial",
    "not_enough_evidence",
)  # fmt: skip
COMPUTE, INPUT, COMMUNICATION, LINK, IMBALANCE, JITTER, HANG, ALL_SLOW, SERIAL, NOT_ENOUGH_EVIDENCE = KINDS
# Kinds that name somebody or something as the cause of a loss.
BLAMING = frozenset(KINDS) - {NOT_ENOUGH_EVIDENCE}
LIMIT_BYTES = 64 << 20
# Of hangs, which the watchmen of the hosts say, and take back when they are over.
BY_WATCHMEN = "hang-"
_TEXT_AT_MOST, _EVIDENCE_AT_MOST = 1000, 64


class Verdict(NamedTuple):
    """What was judged, with its cause.

    Args:
        id: Of this verdict; the same in every line that says more of it.
        time_ns: When it was said last; wall clock of who judges.
        step: The step after which it was said last.
        kind: One of KINDS.
        stage, rank, role: What and who caused the loss, never who waited for it; None where nobody alone did.
        since_step: The first step of which it is true.
        impact_ratio: Share of the step that is lost by it, 0 to 1.
        coverage_ratio: Share of all that is lost which it explains, 0 to 1.
        recurrence_ratio: In which share of the steps since then it was seen.
        confidence: 0 to 1.
        group: Ranks of the group that synchronises, where that matters: a link's, a barrier's.
        waits_for: Who waits for the cause, and where: "ranks 0,2-7 wait for rank 1 in actor_update".
        evidence: The numbers it rests on, by name; plain values.
        next: What to do.
        request: Id of the request for a profile that it led to; "" for none.
        process: Who caused it, where that one has no rank: `process 3 (pid 4711)`; "": a rank, or nobody alone.
        no_request: Why it led to none, where verdicts may ask for profiles, or why that did not come; "" otherwise.
        withdrawn: Why it holds no more; "" while it does.
    """

    id: str
    time_ns: int
    step: int | None
    kind: str
    stage: str | None = None
    rank: int | None = None
    role: str = ""
    since_step: int | None = None
    impact_ratio: float = 0.0
    coverage_ratio: float = 0.0
    recurrence_ratio: float = 0.0
    confidence: float = 0.0
    group: tuple[int, ...] = ()
    waits_for: str = ""
    evidence: Mapping[str, Any] = {}
    next: str = ""
    request: str = ""
    withdrawn: str = ""
    no_request: str = ""
    process: str = ""

    @property
    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**self._asdict(), "group": list(self.group), "evidence": dict(self.evidence)}

    @property
    def is_blaming(self) -> bool:
        """Does it hold, and name a cause?"""
        return self.kind in BLAMING and not self.withdrawn

    def line(self) -> bytes:
        """Its line."""
        return json.dumps(self.plain).encode() + b"\n"

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Verdict | None:
        """Of the JSON of a line; None where it is none."""
        if fields.get("kind") not in KINDS or not text_of(fields.get("id")):
            return None
        return _read_verdict(fields)


def _read_ratio(value: Any) -> float:
    return min(1.0, max(0.0, finite_number(value) or 0.0))


def _read_evidence(value: Any) -> dict[str, Any]:
    """Numbers and texts by name; what else there is as text."""
    kept = list(table_of(value).items())[:_EVIDENCE_AT_MOST]
    return {
        text_of(name)[:100]: of_name
        if isinstance(of_name, bool) or finite_number(of_name) is not None
        else _read_text(of_name)
        for name, of_name in kept
    }


_read_text = values.short_text(_TEXT_AT_MOST)
_read_verdict = values.record_with(Verdict, {
    _read_text: "id kind role waits_for next request withdrawn no_request process", small_number: "rank",
    _read_ratio: "impact_ratio coverage_ratio recurrence_ratio confidence", whole_number: "time_ns",
    step_number: "step since_step", values.small_numbers: "group", _read_evidence: "evidence",
}, stage=lambda stage: _read_text(stage) or None)  # fmt: skip


def read(run: Path, unusable: list[documents.Unusable] | None = None, by: str = "") -> list[Verdict]:
    """Every verdict of a run as it was said last, withdrawn ones too, oldest first.

    Of two lives of one judge the later one counts (`judge_files.py`), of two judges who says it last.

    Args:
        unusable: Files that cannot be used are added to these.
        by: Of those alone whose name begins so: `BY_WATCHMEN`.
    """
    newest: dict[str, tuple[str, Verdict]] = {}
    folder = run / layout.VERDICTS
    contents = {}
    for name in (name for name in documents.names_in(folder, layout.VERDICTS_SUFFIX) if name.startswith(by)):
        try:
            contents[name] = documents.read(folder / name, LIMIT_BYTES) or b""
        except documents.Unusable as exc:
            if unusable is not None:
                unusable.append(exc)
    for life, content in judge_files.in_order(contents):
        # The last line may be half written.
        lines = (Verdict.read(documents.object_in(line)) for line in content.split(b"\n"))
        for verdict in filter(None, lines):
            who, before = newest.get(verdict.id, (life.who, verdict))
            if who == life.who or verdict.time_ns >= before.time_ns:
                newest[verdict.id] = life.who, verdict
    return sorted((verdict for _, verdict in newest.values()), key=lambda verdict: (verdict.time_ns, verdict.id))


def append(file: Path, verdicts: Iterable[Verdict], first: bytes = b"") -> None:
    """Add lines to a file, which only its owner writes.
    `first`: the line that the file begins with. Raises OSError: it cannot be written; nothing of them is left in it.
    """
    block = b"".join(verdict.line() for verdict in verdicts)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with documents.closing(os.open(file, flags, documents.FILE_MODE)) as descriptor:
        before = os.fstat(descriptor).st_size
        if before + len(block) > LIMIT_BYTES:
            os.ftruncate(descriptor, 0)  # what holds is said again by who judges; the rest is long over
            before = 0
        documents.appended(descriptor, before, block, first)
