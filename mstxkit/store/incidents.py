"""`incidents/<time>/`: what was seen of a job as it hung, or as one of its processes died: who, where, since when.

Whoever opens an incident makes its folder with `call.json` in it. The watchman of each host answers with one file of
reports on all of its processes, `hosts/<host>-<digest>.json`. Who opened it makes `incident.json` and `incident.txt`
of these. Anybody with this user's rights may have written there: nothing is taken on trust.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Mapping, NamedTuple

from . import documents, layout, values
from .documents import FORMAT, Unusable
from .stacks import signal_name
from .values import list_of, small_number, step_number, table_of, text_of, whole_number

KINDS = HANG, KILLED, SIGNAL, EXCEPTION, REQUEST = "hang", "killed", "signal", "exception", "request"
# Of one host's reports; of them all there is a limit of what incidents may take together (`incidents_bytes`).
HOST_LIMIT_BYTES, SUMMARY_LIMIT_BYTES = 32 << 20, 8 << 20
_TEXT_AT_MOST, _INCIDENTS_AT_MOST = 1000, 10_000
_NAME = re.compile(r"\d{8}T\d{6}\.\d{3}", re.ASCII)


class Incident(NamedTuple):
    """What an incident comes to."""

    incident: str  # its folder's name
    time_ns: int  # when it was opened; wall clock of who opened it
    kind: str  # one of KINDS
    # stage, range: where it happened; "" where that is not known
    stage: str = ""
    range: str = ""
    # rank, role: the cause; None and "" where nobody alone is
    rank: int | None = None
    role: str = ""
    since_ns: int = 0  # when the range was entered in which it happened; wall clock. 0: not known
    waits_for: str = ""  # who waits for whom, in words
    reports: int = 0  # how many processes have reported
    reason: str = ""  # why it was opened, and by what the cause is known, in words
    over_ns: int = 0  # when a hang went on, or its ranks began anew; 0 while it lasts
    details: Mapping[str, Any] = {}  # what the page shows beside that, plain values

    @property
    def page(self) -> str:
        """Of its readable page, relative to the run."""
        return f"{layout.INCIDENTS}/{self.incident}/{layout.INCIDENT_PAGE}"

    @property
    def facts(self) -> dict[str, Any]:
        """Plain values: its fields, its `page`, `who`, the cause in words ("" for nobody alone), the name of its
        `process`, its `step`, `signal`, by which it was ended, `oom_kills`, how many the kernel had just killed on its
        host as memory ran out, and how it is `held`, as `incidents/deciding.py` says it.
        """
        details = self.details
        steps = (step_number(table_of(inside).get("step")) for inside in list_of(details.get("inside")))
        return {
            **self._asdict(), "details": None, "over_ns": self.over_ns or None, "page": self.page,
            "who": text_of(details.get("who")), "process": text_of(details.get("process")),
            "step": next((step for step in steps if step is not None), None),
            "signal": signal_name(details.get("signal"), text_of(details.get("fatal"))) or None,
            "oom_kills": values.count_of(details.get("oom_kills")), "held": text_of(details.get("how")),
        }  # fmt: skip

    def as_json(self, run_id: str) -> bytes:
        """The content of `incident.json`."""
        fields = {"format": FORMAT, "run": run_id, **self._asdict(), "details": dict(self.details)}
        return json.dumps(fields, indent=1).encode()

    @classmethod
    def read(cls, name: str, fields: Mapping[str, Any]) -> Incident | None:
        """Of that content; None where it is none."""
        return _read_incident({**fields, "incident": name}) if fields.get("kind") in KINDS else None


_read_incident = values.record_with(Incident, {
    values.short_text(_TEXT_AT_MOST): "incident kind stage range role waits_for reason", small_number: "rank",
    whole_number: "time_ns since_ns over_ns", values.count_of: "reports", table_of: "details",
})  # fmt: skip


def is_name(text: str) -> bool:
    """May a folder of an incident be called so?"""
    return _NAME.fullmatch(text) is not None


def list_names(run: Path) -> list[str]:
    """Of all incidents of a run, also of those that are just being opened; oldest first."""
    return list(filter(is_name, documents.names_in(run / layout.INCIDENTS)))[-_INCIDENTS_AT_MOST:]


def folder_of(run: Path, name: str) -> Path:
    """Of the incident of that name."""
    return run / layout.INCIDENTS / name


def read_summary(run: Path, name: str, run_id: str) -> Incident | None:
    """What an incident came to; None while it is open. Raises Unusable: its file is no such file."""
    file = folder_of(run, name) / layout.INCIDENT_FILE
    content = documents.read_small(file, SUMMARY_LIMIT_BYTES)
    if content is None:
        return None
    incident = Incident.read(name, documents.document_in(content, file, run_id, "incident"))
    if incident is None:
        raise Unusable(file, "is of no kind that is known here")
    return incident


def read_incidents(run: Path, run_id: str, unusable: list[Unusable] | None = None) -> list[Incident]:
    """Every incident of a run that has come to something, oldest first; files that cannot be used are added."""
    summaries = documents.each_usable(list_names(run), lambda name: read_summary(run, name, run_id), unusable)
    return list(filter(None, summaries))


def reports_of(run: Path, name: str, run_id: str) -> dict[str, list[dict[str, Any]]]:
    """What each host has reported on its processes so far, by the name of its file; what is none is left out."""
    files = answers_of(run, name)
    return {file.name: reports for file in files if (reports := reports_in(file, run_id)) is not None}


def answers_of(run: Path, name: str) -> list[Path]:
    """The files of the hosts that have answered so far."""
    folder = folder_of(run, name) / layout.INCIDENT_HOSTS
    return [folder / file for file in documents.names_in(folder, layout.NOW_SUFFIX) if not file.startswith(".")]


def reports_in(file: Path, run_id: str) -> list[dict[str, Any]] | None:
    """What one host has reported; None where there is no such file, or none that can be used."""
    fields = documents.find_document(file, run_id, HOST_LIMIT_BYTES)
    return [dict(table_of(report)) for report in list_of(fields.get("processes"))] if fields else None
