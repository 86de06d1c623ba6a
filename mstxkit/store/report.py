"""`control/acks/rank<R>[-<role>].json`: what a rank says of itself and of every request that it knows.

Written by that rank, whole each time; read by other ranks, by the rank itself after a restart, and by whoever asks how
a request stands. Anybody with this user's rights may have edited it: what is no report is left out.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, NamedTuple

from ..errors import ConfigError
from ..host import identity
from . import documents, layout
from .documents import FORMAT, LIMIT_BYTES, Unusable
from .limits import ESCALATE, OBSERVE
from .values import whole_number

QUEUED, ARMED, RUNNING, DRAINING = OPEN_STATES = ("queued", "armed", "running", "draining")
DONE, CANCELLED, EXPIRED, REFUSED, FAILED = END_STATES = ("done", "cancelled", "expired", "refused", "failed")
IN_A_SESSION = (RUNNING, DRAINING)
SAY_AGAIN_S = 60.0  # a living rank says what it says anew after so long
_REPORTS_AT_MOST = 500
_ENVELOPE_BYTES = 4096  # what a document is written with
_TYPES = {"rank": int, "role": str, "host": str, "pid": int, "written_ns": int, "document": dict}


class Report(NamedTuple):
    """What became of a request, by its id, on one rank, up to now."""

    id: str
    rank: int
    state: str  # one of OPEN_STATES and END_STATES
    step: int | None = None  # the rank's step; None before its first
    ready: bool = False  # queued, and waiting for all ranks to agree on a step
    # first_step, last_step: the window; None where it is not decided, or occurrences are counted
    first_step: int | None = None
    last_step: int | None = None
    # recorded, recorded_steps: sessions that were recorded, and in which steps, each once
    recorded: int = 0
    recorded_steps: tuple[int, ...] = ()
    bytes: int = 0  # raw data of these, as far as told
    reason: str = ""  # why it waits, or ended as it did; notes on sessions that were cut short

    @property
    def has_ended(self) -> bool:
        """Is this the last word of that rank?"""
        return self.state in END_STATES

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Report:
        """Of its `_asdict`, after JSON; what is more is left out. ValueError or TypeError where it is none."""
        own = {name: fields[name] for name in cls._fields if name in fields}
        report = cls(**{**own, "recorded_steps": tuple(fields.get("recorded_steps", ()))})
        if report.state not in OPEN_STATES + END_STATES:
            raise ValueError(f"no state of a request: {report.state!r}")
        return report


class EscalationNews(NamedTuple):
    """One request in a state that it has just come to: from who judges a run to who exports what he says."""

    request: str  # its id
    state: str  # one of OPEN_STATES and END_STATES, of all ranks together
    # time_ns, asked_ns: wall clock: when that was seen, and when it was asked for
    time_ns: int
    asked_ns: int
    counts: str = ""  # `armed 3, done 5 of 8`
    reason: str = ""  # of a rank in that state, in its words; "" for none
    # stages, ranks, preset: what was asked for
    stages: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    preset: str = ""
    asks: str = ""  # why, in the asker's words
    verdict: str = ""  # id of the verdict that asks; "" for none


class StepPace(NamedTuple):
    """The step of a process, since when on CLOCK_MONOTONIC, and what one took last; None: not known yet."""

    step: int | None = None
    since_ns: int | None = None
    step_ns: int | None = None

    def at(self, step: int, now_ns: int) -> StepPace:
        """In this step from now on."""
        if self.step is None or self.since_ns is None or step <= self.step:
            return self._replace(step=step, since_ns=now_ns)
        return StepPace(step, now_ns, max(0, now_ns - self.since_ns) // (step - self.step))


class Standing(NamedTuple):
    """What a rank says of itself: the document of its acknowledgement."""

    world_size: int  # ranks of the run, as this one knows
    # step, step_ns: its step when this was written, and how long one took last; None: not known
    step: int | None
    step_ns: int | None
    stages: tuple[str, ...]  # keys of the stages that it has entered
    phase: str  # idle, armed, running, draining or cooldown
    # backend, why_no_backend: name of the profiler of its sessions; where none can record (None), why each cannot
    backend: str | None
    why_no_backend: Mapping[str, str]
    reports: tuple[Report, ...]  # of every request that it knows, and of those it speaks for; newest last
    # groups, why_no_group: its place in the job's parallel dimensions, as `host.parallel.Place` has it
    groups: Mapping[str, tuple[int, int]] = {}
    why_no_group: str = ""
    # HCCL's as its environment sets them (`store/hccl.py`); None where it does not say.
    timeouts: Mapping[str, str] | None = None
    act: str = OBSERVE  # may verdicts ask for profiles of it? One of `limits.ACTS`

    @property
    def is_connecting(self) -> bool:
        """Does it count steps, and has not ended one yet?"""
        return self.step is not None and self.step_ns is None

    def as_json(self) -> dict[str, Any]:
        """A plain dict; `Standing.read` makes an equal one of it."""
        reports = [report._asdict() for report in self.reports[-_REPORTS_AT_MOST:]]
        plain = {"stages": list(self.stages), "why_no_backend": dict(self.why_no_backend), "reports": reports}
        return {**self._asdict(), **plain}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Standing:
        """Of an acknowledgement's document; reports that are none are left out. Raises ConfigError: it is none."""
        try:
            step, step_ns, backend = (document[key] for key in ("step", "step_ns", "backend"))
            timeouts = document.get("timeouts")
            return cls(
                world_size=int(document["world_size"]),
                step=None if step is None else int(step),
                step_ns=None if step_ns is None else int(step_ns),
                stages=tuple(str(stage) for stage in document["stages"]),
                phase=str(document["phase"]),
                backend=None if backend is None else str(backend),
                why_no_backend={str(name): str(why) for name, why in document["why_no_backend"].items()},
                reports=tuple(_read_reports(document["reports"])),
                groups={
                    str(dimension): (int(index), int(size))
                    for dimension, (index, size) in document.get("groups", {}).items()
                    if 0 <= int(index) < int(size)
                },
                why_no_group=str(document.get("why_no_group", "")),
                timeouts={str(name): str(s) for name, s in timeouts.items()} if isinstance(timeouts, dict) else None,
                act=ESCALATE if document.get("act") == ESCALATE else OBSERVE,
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
            raise ConfigError(f"not what a rank says of itself: {exc!r}") from None


class Acknowledgement(NamedTuple):
    """The file of one rank: who wrote it (role "": none is known), when by that host's clock, and its `Standing`."""

    rank: int
    role: str
    host: str
    pid: int
    written_ns: int
    document: dict[str, Any]


def encode_report(run_id: str, rank: int, role: str, document: Mapping[str, Any]) -> bytes:
    """The content of this process's acknowledgement as this rank."""
    about: dict[str, Any] = {"format": FORMAT, "run": run_id, "rank": rank, "role": layout.role_in_names(role)}
    about.update(host=identity.name_host(), pid=os.getpid(), written_ns=time.time_ns(), document=dict(document))
    return json.dumps(about, default=str).encode()


def read_report(file: Path, run_id: str, is_private: bool) -> Acknowledgement | None:
    """The acknowledgement in a file; None where there is none, and of a copy of another rank's file.
    Raises Unusable: it is no acknowledgement of this run.
    """
    fields = documents.read_document(file, run_id, is_private)
    if fields is None:
        return None
    if not all(isinstance(fields.get(field), kind) for field, kind in _TYPES.items()):
        raise Unusable(file, "lacks a field of an acknowledgement")
    written_ns = whole_number(fields["written_ns"])
    ack = Acknowledgement(**{**{field: fields[field] for field in _TYPES}, "written_ns": written_ns})
    return ack if (ack.rank, ack.role) == layout.ack_of(file.name) else None


def fit_report(document: dict[str, Any]) -> dict[str, Any]:
    """The same without the oldest of what it tells and remembers, if an acknowledgement would be too large to be read.

    What cannot be written down would keep a rank from recording anything.
    """
    while len(json.dumps(document, default=str)) > LIMIT_BYTES - _ENVELOPE_BYTES:
        memory = document["memory"]
        early = {kind: dict(_keep_newer(list(of.items()))) for kind, of in memory["early"].items()}
        newer = {key: _keep_newer(memory[key]) for key in ("ended", "elsewhere")}
        memory = {**memory, **newer, "early": early}
        smaller = {**document, "reports": _keep_newer(document["reports"]), "memory": memory}
        if smaller == document:
            break
        document = smaller
    return document


def _keep_newer(listed: list[Any]) -> list[Any]:
    return listed[(len(listed) + 1) // 2 :]


def _read_reports(listed: Iterable[Any]) -> Iterator[Report]:
    for fields in listed:
        with suppress(TypeError, ValueError, AttributeError):
            yield Report.read(fields)
