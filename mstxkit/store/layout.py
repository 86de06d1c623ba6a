"""Every name below a run folder, once. Writers and readers take them from here.

<run>/run.json                                the run's id
<run>/live/<process>.json                     where the live file of a process is
<run>/sealed/<process>.<nnnn>.mxs             what it recorded
<run>/patches/<process>.json                  what became of its patched targets
<run>/now/<host>-<digest>.json                in which step and stage the processes of a host are
<run>/summaries/<host>-<digest>.mxb           what the processes of a host handed over, step by step
<run>/summaries/<host>-<digest>.old.mxb       the part before that, once there was too much of it
<run>/verdicts/<who>[.<life>].jsonl           what was judged of the job (store/verdicts.py)
<run>/verdicts/figures.json                   figures of the step that was judged last, and what settings were in force
<run>/verdicts/job.json                       the job as who judges it sees it, for `mstxkit top`
<run>/verdicts/judge.lock                     held by who judges it now
<run>/incidents/<time>/incident.json          what came of a hang or a death, and incident.txt for people
<run>/incidents/<time>/hosts/<host>-<digest>.json   what a host has reported of its processes, as call.json asked
<run>/incidents/nobody.json                   until when nobody need look again whether somebody is stuck
<run>/incidents/asked                         replaced by whoever wants an incident without one
<run>/imports/<file>-<digest>.parquet         what another tool's file says of devices; .json: which file that was
<run>/control/settings.json                   what is judged by, as it was changed while the run goes on
<run>/metrics/targets.json                    where Prometheus finds who judges; mstxkit.prom, token: for it too
<run>/care/<host>-<key>.json                  what is on a host's own disk, and what was removed
<run>/compact/…                               Parquet that sealed files were turned into (store/dataset.py)
<run>/control/requests.json                   every message to all ranks; requests.lock is held by who adds one
<run>/control/acks/rank<R>[-<role>].json      what a rank says of them
<run>/profiles/<stage>/step<N>/rank<R>/<start ns>-<pid>/session.json   one profile, and analysis.json of its parse
<run>/profiles/<request>/[<stage>.step<N>/]<what the profiler wrote>   all ranks of a finished request, for tools
<live folder>/<process>.live                  on the host: a process's live file; control-*: what they pass on
<live folder>/<process>.sums                  what a process hands over to its keeper, and of which stages
<live folder>/<process>.rings                 its entries into collectives, from torch's rings
<live folder>/control-rings                   replaced by whoever asks for new ones
<live folder>/<process>.stacks                what Python was at, written as it was asked for, or as it died
<live folder>/<process>.ask                   a pipe by which it is asked for
<live folder>/control-incident                the newest incident in a line, for one of the processes to log
<live folder>/control-watch                   a lock of the process that watches the others for hangs
<live folder>/<process>.life                  a lock that its process holds while it lives
<live folder>/keeper-<host>.life              a lock of the one that looks after the others
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Iterable

from ..host import identity, life

RUN_FILE = "run.json"
LIVE, SEALED, PATCHES, CONTROL, PROFILES = "live", "sealed", "patches", "control", "profiles"
NOW, NOW_SUFFIX = "now", ".json"
SUMMARIES, SUMMARIES_SUFFIX = "summaries", ".mxb"
VERDICTS, VERDICTS_SUFFIX = "verdicts", ".jsonl"
FIGURES, JUDGE_LOCK, SETTINGS = "figures.json", "judge.lock", "settings.json"
JOB = "job.json"
METRICS = "metrics"
TARGETS, TEXTFILE, TOKEN = "targets.json", "mstxkit.prom", "token"
HANDED_OVER_SUFFIX = ".sums"
INCIDENTS, INCIDENT_HOSTS, INCIDENTS_LOCK = "incidents", "hosts", "incidents.lock"
INCIDENTS_QUIET = "nobody.json"
INCIDENT_FILE, INCIDENT_PAGE, INCIDENT_CALL, INCIDENT_ASKED = "incident.json", "incident.txt", "call.json", "asked"
CARE, CARE_SUFFIX = "care", ".json"
IMPORTS = "imports"
ACKS, REQUESTS, REQUESTS_LOCK = "acks", "requests.json", "requests.lock"
SESSION_FILE, ANALYSIS_FILE, ANALYSIS_LOCK = "session.json", "analysis.json", "analysis.lock"
# A pointer of a process: while its live file is made, and while another process seals that.
POINTER, BEING_MADE, CLAIMED = ".json", ".making", ".adopting."
LIVE_SUFFIX, SEALED_SUFFIX, PATCHES_SUFFIX = life.LIVE_SUFFIX, ".mxs", ".json"
# Beginning of the names of what processes of one host pass on to each other beside their live files.
PASSED_ON = "control-"
RINGS_SUFFIX, ASKED_FOR_RINGS = ".rings", f"{PASSED_ON}rings"
STACKS_SUFFIX, TOLD_SUFFIX, ASK_SUFFIX, WATCH_LOCK = ".stacks", ".told", ".ask", f"{PASSED_ON}watch"
INCIDENT_NEWS, ADOPTS = f"{PASSED_ON}incident", f"{PASSED_ON}adopts-"
KEEPER = "keeper-"
# The newest figures of the job, beside the live files.
FIGURES_HERE = f"{PASSED_ON}{FIGURES}"
# What the keeper has read of each process so far, for the next one.
READ_SO_FAR = f"{PASSED_ON}handed.json"
SESSION_DEPTH = 4  # folders between profiles/ and session.json
RAW_SUFFIXES = ("_ascend_pt", "_ascend_ms")  # of the folders that torch_npu and MindSpore write

_ACK = re.compile(r"rank(0|[1-9]\d{0,8})(?:-(\w+))?\.json", re.ASCII)
_STEP, _RANK = re.compile(r"step(\d{1,18})"), re.compile(r"rank(\d{1,9})")
_STAGE, _STAGE_AT_MOST = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]{0,79}"), 60


def sealed_name(process: str, number: int) -> str:
    """The file of a process's sealed blocks with this number, from 0 or 1 on."""
    return f"{process}.{number:04d}{SEALED_SUFFIX}"


def sealed_number(name: str) -> int:
    """`nnnn` of `<process>.<nnnn>.mxs`; -1 where there is none."""
    digits = name.rsplit(".", 2)[1]
    return int(digits) if digits.isdecimal() and len(digits) < 12 else -1


def sealed_process(name: str) -> str:
    """`<process>` of `<process>.<nnnn>.mxs`."""
    return name[: -len(SEALED_SUFFIX)].rsplit(".", 1)[0]


def name_of_host(folder: Path, suffix: str) -> str:
    """Of a file of this host in a run: containers may share its name, and have another /dev/shm each, and a keeper
    each. `folder`: of the live files of this host.
    """
    import hashlib

    place = f"{identity.boot_id()} {folder} {folder.stat().st_dev}"
    return f"{identity.name_host()}-{hashlib.sha256(place.encode()).hexdigest()[:8]}{suffix}"


def of_keeper(there: Iterable[str], suffix: str, host: str) -> list[str]:
    """The processes that have a file with this suffix among what is `there`, beside live files, without those of hosts
    of other names that have keepers of their own.
    """
    kept = {name[len(KEEPER) : -len(life.SUFFIX)] for name in there if name.startswith(KEEPER)} - {host}
    processes = (name[: -len(suffix)] for name in there if name.endswith(suffix))
    return sorted(name for name in processes if name.rsplit("-", 2)[0] not in kept)


def is_sealed(name: str) -> bool:
    """Is this the name of a sealed file, and no way out of its folder?"""
    return name.endswith(SEALED_SUFFIX) and "/" not in name and "\0" not in name and sealed_number(name) >= 0


def in_order(names: Iterable[str]) -> list[str]:
    """Names of sealed files by process, and by number."""
    return sorted(names, key=lambda name: (sealed_process(name), sealed_number(name)))


def newest_of_each(names: Iterable[str]) -> set[str]:
    """Of the names of sealed files the newest of each process."""
    return set({sealed_process(name): name for name in in_order(names)}.values())


def role_in_names(role: str) -> str:
    """A role, fit for a file name."""
    return re.sub(r"\W", "_", role, flags=re.ASCII)[: identity.ROLE_LIMIT]


def ack_name(rank: int, role: str) -> str:
    """The file of a rank's acknowledgement."""
    return f"rank{rank}-{role_in_names(role)}.json" if role else f"rank{rank}.json"


def ack_of(name: str) -> tuple[int, str] | None:
    """Rank and role of an acknowledgement's file; None where it is none."""
    match = _ACK.fullmatch(name)
    return (int(match[1]), match[2] or "") if match else None


def session_parts(stage: str, step: int | None, rank: int) -> tuple[str, str, str, str]:
    """The folders on the way from the run to those of this stage's sessions."""
    return PROFILES, stage_in_names(stage), "step-unknown" if step is None else f"step{step:d}", f"rank{rank:d}"


def request_parts(request: str, stage: str, step: int | None, nth: int, is_only: bool) -> tuple[str, ...]:
    """The folders on the way from the run to the data of one session of a request, where tools look: of the `nth` of
    this stage, step and rank, from 1 on.
    `is_only`: can there be one window alone? Else each has a folder: tools take one profile of a rank in a folder.
    """
    top = (PROFILES, stage_in_names(request))
    if is_only and nth == 1:
        return top
    _, stage_name, step_name, _ = session_parts(stage, step, 0)
    return (*top, f"{stage_name}.{step_name}" + (f".{nth}" if nth > 1 else ""))


def data_parts(session: tuple[str, ...], output: str, request: str) -> tuple[str, ...] | None:
    """Where the `output` lies that the session.json in this folder below profiles/ names, itself or by the way to the
    request's folder; below profiles/ as well; None where it may not name that.
    """
    if output in ("", ".", "..") or "\0" in output:
        return None
    if "/" not in output:
        return (*session, output)
    way = "../" * len(session)
    parts = tuple(output[len(way) :].split("/")) if output.startswith(way) else ()
    is_there = 2 <= len(parts) <= 3 and parts[0] == stage_in_names(request) and bool(request)
    return parts if is_there and not {"", ".", ".."}.intersection(parts) else None


def stage_in_names(stage: str) -> str:
    """A stage's key as the name of a folder: itself where it may be one, else what is left of it with a digest."""
    if _STAGE.fullmatch(stage):
        return stage
    import hashlib

    digest = hashlib.blake2b(stage.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{re.sub('[^0-9A-Za-z_-]', '_', stage)[:_STAGE_AT_MOST]}-{digest}"


def step_and_rank(parts: tuple[str, ...]) -> tuple[int | None, int | None]:
    """What the folders on the way to a session say of it; None where they do not."""
    steps = [int(match[1]) for part in parts if (match := _STEP.fullmatch(part))]
    ranks = [int(match[1]) for part in parts if (match := _RANK.fullmatch(part))]
    return next(iter(steps), None), next(iter(ranks), None)


def is_run(folder: str | os.PathLike[str]) -> bool:
    """Does a folder hold anything by which a run is known?"""
    return any(os.path.lexists(Path(folder, name)) for name in (RUN_FILE, SEALED, LIVE))
