"""`verdicts/<who>.<life>.jsonl`: what was judged of a job, a line each, appended by whoever judges it.

A line with the id of an earlier one replaces it: a verdict grows with its evidence, and is withdrawn when that is gone.
Anybody with this user's rights may have written there: what is no verdict is left out.

Each life of a judge writes a file of its own, and a later life's word counts: a judge that was cut off, or that another
one has replaced, may go on. What it says after a later life of the same name has begun counts for nothing: that one's
first line says how long the files before it were. No clock is asked.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Iterable, Mapping, NamedTuple

from ..host import folders
from . import documents, layout, values
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
_NAME = re.compile(r"(.+)\.(\d{1,9})\.jsonl", re.DOTALL | re.ASCII)
_FENCE, _TRIES = "before", 100


class Verdict(NamedTuple):
    """What was judged, with its cause."""

    id: str  # of this verdict; the same in every line that says more of it
    time_ns: int  # when it was said last; wall clock of who judges
    step: int | None  # the step after which it was said last
    kind: str  # one of KINDS
    # stage, rank, role: what and who caused the loss, never who waited for it; None where nobody alone did
    stage: str | None = None
    rank: int | None = None
    role: str = ""
    since_step: int | None = None  # the first step of which it is true
    impact_ratio: float = 0.0  # share of the step that is lost by it, 0 to 1
    coverage_ratio: float = 0.0  # share of all that is lost which it explains, 0 to 1
    recurrence_ratio: float = 0.0  # in which share of the steps since then it was seen
    confidence: float = 0.0  # 0 to 1
    group: tuple[int, ...] = ()  # ranks of the group that synchronises, where that matters: a link's, a barrier's
    waits_for: str = ""  # who waits for the cause, and where: "ranks 0,2-7 wait for rank 1 in actor_update"
    evidence: Mapping[str, Any] = {}  # the numbers it rests on, by name; plain values
    next: str = ""  # what to do
    request: str = ""  # id of the request for a profile that it led to; "" for none
    withdrawn: str = ""  # why it holds no more; "" while it does
    # Why it led to none, where verdicts may ask for profiles, or why that did not come; "" otherwise.
    no_request: str = ""
    process: str = ""  # who caused it, where that one has no rank: `process 3 (pid 4711)`; "": a rank, or nobody alone

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
    (lambda ratio: min(1.0, max(0.0, finite_number(ratio) or 0.0))):
        "impact_ratio coverage_ratio recurrence_ratio confidence",
    whole_number: "time_ns", step_number: "step since_step", values.small_numbers: "group", _read_evidence: "evidence",
}, stage=lambda stage: _read_text(stage) or None)  # fmt: skip


class LifeName(NamedTuple):
    """Whose file it is, and of which life; without a number it is of none, or of the first one."""

    who: str
    life: int

    @property
    def file(self) -> str:
        """The name of it."""
        return f"{self.who}.{self.life:04d}{layout.VERDICTS_SUFFIX}"


def life_of(name: str) -> LifeName:
    """Of the name of a file of verdicts."""
    match = _NAME.fullmatch(name)
    return LifeName(match[1], int(match[2])) if match else LifeName(name[: -len(layout.VERDICTS_SUFFIX)], 0)


def in_order(contents: Mapping[str, bytes]) -> Iterable[tuple[LifeName, bytes]]:
    """What counts of each file, a judge's lives one after the other. `contents`: by the names of the files."""
    lives = {name: life_of(name) for name in contents}
    at_most = {name: len(content) for name, content in contents.items()}
    for later, content in contents.items():
        first = documents.object_in(content.partition(b"\n")[0])
        for name, size in table_of(first.get(_FENCE)).items():
            is_before = name in lives and lives[name].who == lives[later].who and lives[name].life < lives[later].life
            if is_before and type(size) is int:
                at_most[name] = min(at_most[name], max(0, size))
    return [(lives[name], contents[name][: at_most[name]]) for name in sorted(contents, key=lambda name: lives[name])]


def read_verdicts(run: Path, unusable: list[documents.Unusable] | None = None, by: str = "") -> list[Verdict]:
    """Every verdict of a run as it was said last, withdrawn ones too, oldest first. Of two lives of one judge the later
    one counts, of two judges who says it last.
    `unusable`: files that cannot be used are added. `by`: of those alone whose name begins so: `BY_WATCHMEN`.
    """
    newest: dict[str, tuple[str, Verdict]] = {}
    folder = run / layout.VERDICTS
    names = [name for name in documents.names_in(folder, layout.VERDICTS_SUFFIX) if name.startswith(by)]
    reading = documents.each_usable(names, lambda n: (n, documents.read_small(folder / n, LIMIT_BYTES)), unusable)
    for life, content in in_order({name: content or b"" for name, content in reading}):
        # The last line may be half written.
        lines = (Verdict.read(documents.object_in(line)) for line in content.split(b"\n"))
        for verdict in filter(None, lines):
            who, before = newest.get(verdict.id, (life.who, verdict))
            if who == life.who or verdict.time_ns >= before.time_ns:
                newest[verdict.id] = life.who, verdict
    return sorted((verdict for _, verdict in newest.values()), key=lambda verdict: (verdict.time_ns, verdict.id))


def append_to(file: Path, verdicts: Iterable[Verdict], first: bytes = b"") -> None:
    """Add lines to a file, which only its owner writes.
    `first`: the line that the file begins with. Raises OSError: it cannot be written; nothing of them is left in it.
    """
    block = b"".join(verdict.line() for verdict in verdicts)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with documents.close_after(os.open(file, flags, documents.FILE_MODE)) as descriptor:
        before = os.fstat(descriptor).st_size
        if before + len(block) > LIMIT_BYTES:
            os.ftruncate(descriptor, 0)  # what holds is said again by who judges; the rest is long over
            before = 0
        documents.append_block(descriptor, before, block, first)


class JudgeLife:
    """One life of the judge of this name: from now on those before it say nothing more that counts.
    Raises OSError, CaptureError: its file cannot be made.
    """

    def __init__(self, run: Path, who: str) -> None:
        self._folder, self._who = run / layout.VERDICTS, who
        folders.make_folder(self._folder)
        for _ in range(_TRIES):
            if self._has_begun():
                return
        raise FileExistsError(f"{self._folder}: other lives of {who} begin all the time")

    def _has_begun(self) -> bool:
        """Make its file, unless another one has made it meanwhile."""
        before = self._list_lives()
        sizes = {name: os.stat(self._folder / name, follow_symlinks=False).st_size for name in before}
        # The first line of a life: of the files before it so many bytes count.
        self._fence = json.dumps({_FENCE: sizes}).encode() + b"\n"
        self._life = max(before.values(), default=0) + 1
        self._file = self._folder / LifeName(self._who, self._life).file
        try:
            os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, documents.FILE_MODE))
        except FileExistsError:
            return False
        try:
            append_to(self._file, (), self._fence)
        except OSError:  # a full disk: no file without its first line is left at each try
            self._file.unlink(missing_ok=True)
            raise
        return True

    def _list_lives(self) -> dict[str, int]:
        """The files of this judge, to which life each is of."""
        names = documents.names_in(self._folder, layout.VERDICTS_SUFFIX)
        lives = {name: life_of(name) for name in names}
        return {name: life.life for name, life in lives.items() if life.who == self._who}

    def is_over(self) -> bool:
        """Has a later life begun? Then nothing that this one says counts."""
        return max(self._list_lives().values(), default=0) > self._life

    def append(self, judged: Iterable[Verdict]) -> None:
        """Add lines. Raises OSError: they cannot be written; nothing of them is left."""
        append_to(self._file, judged, self._fence)
