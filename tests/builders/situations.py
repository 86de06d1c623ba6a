"""Runs as situations leave them, and all that is said of one: by the report, its JSON and its page, and what is next.

Each step a rank generates alone, then all of a role update together: who comes first there waits for whoever is last.
"""

from __future__ import annotations

import html
import json
import os
import random
import re
import shlex
from pathlib import Path
from typing import Any, Callable, NamedTuple, Sequence

import pytest
from builders.run_files import RUN_ID, WALL_OFFSET_NS, BankFiles, ProcessFiles, alive, anchor, new_run

pytest.importorskip("polars")
testing = pytest.importorskip("typer.testing")

from mstxkit.cli import build_application  # noqa: E402
from mstxkit.incidents import page as incident_page  # noqa: E402
from mstxkit.store import layout  # noqa: E402
from mstxkit.store.incidents import Incident  # noqa: E402

MS, S = 10**6, 10**9
OWN, TOGETHER, STEPS = "actor_generate", "actor_update", 60
OwnMs = Callable[[int, int], float]


class Said(NamedTuple):
    """What is said of a run.

    Attributes:
        first: The report's first line, as it stands on a wide screen.
        next: The command that it advises; "": none.
        codes: With which `report` and `top --once` end.
        kind, blames: Of the headline, in JSON.
    """

    first: str
    next: str
    codes: tuple[int, int]
    kind: str
    blames: bool


def alike(step: int, rank: int) -> float:
    """So long each rank generates where nobody is slow, ms."""
    return 100.0


class Life(NamedTuple):
    """One process, its ranges, and how it ends: as `ProcessFiles` takes it."""

    rank: int | None
    bank: BankFiles
    begin_ns: int
    end_ns: int
    fields: dict[str, Any]

    def ending(self, **fields: Any) -> Life:
        """The same, which ends so."""
        return self._replace(fields={**self.fields, **fields})

    def inside_of(self, step: int, name: str = TOGETHER) -> Life:
        """The same, killed inside of a stage."""
        opened = {"name": name, "domain": "default", "stage": name, "step": step, "start": self.end_ns - S, "depth": 0}
        return self.ending(inside=[opened], ended="killed")


def trained(
    own_ms: OwnMs = alike, ranks: int = 2, steps: Sequence[int] = range(STEPS), begin_ns: int = 0,
    has_stages: bool = True, has_steps: bool = True, waits: bool = True, has_ranks: bool = True,
    work: Callable[[int, int], int] | None = None,
) -> list[Life]:  # fmt: skip
    """Processes that train, not written yet. Each takes a little longer or shorter than it is said to, by a seed.

    Args:
        own_ms: How long a rank generates in a step.
        ranks, steps: How many, and which.
        begin_ns: When they begin.
        has_stages, has_steps, has_ranks: Is each told?
        waits: Do they update together?
        work: Tokens that a rank has generated in a step.
    """
    chance, banks, now = random.Random(0), [BankFiles() for _ in range(ranks)], [begin_ns] * ranks
    for step in steps:
        ready, known = [], {"step": step} if has_steps else {}
        for rank, bank in enumerate(banks):
            end = now[rank] + round(own_ms(step, rank) * (1 + chance.gauss(0, 0.01)) * MS)
            tokens = {} if work is None else {"tokens": work(step, rank)}
            bank.range(OWN, now[rank], end, stage=OWN if has_stages else None, own=has_stages, **known, **tokens)
            ready.append(end)
        over = [max(ready) if waits else at for at in ready]
        for rank, bank in enumerate(banks):
            end = over[rank] + round((40 + chance.gauss(0, 0.4)) * MS)
            bank.range(TOGETHER, ready[rank], end, stage=TOGETHER if has_stages else None, own=has_stages, **known)
            now[rank] = end + MS
    return [Life(rank if has_ranks else None, bank, begin_ns, now[rank], {}) for rank, bank in enumerate(banks)]


def written(folder: Path, *lives: Life) -> Path:
    """A sealed run of them: each ends in order, unless its fields say how else."""
    run = folder if folder.exists() else new_run(folder)
    for at, life in enumerate(lives):
        fields = {"pid": 4711 + at, "ended": "exit", "inside": None, "end": None, **life.fields}
        how = {name: fields.pop(name) for name in ("ended", "inside", "end")}
        _files(run, life, len(lives), **fields).seal(life.bank, **how)
    return run


def running(folder: Path, *lives: Life) -> Path:
    """A run of them in which each is this very process, and goes on."""
    run = new_run(folder)
    for at, life in enumerate(lives):
        files = _files(run, life, len(lives), pid=os.getpid(), start=f"5eed{at}", **life.fields)
        files.live(life.bank, pointer=alive(), bank_bytes=1 << 16)
    return run


def _files(run: Path, life: Life, count: int, **fields: Any) -> ProcessFiles:
    anchors = (anchor(life.begin_ns), anchor(life.end_ns))
    about = {"start_ns": WALL_OFFSET_NS + life.begin_ns, "world_size": count, "anchors": anchors, **fields}
    files = ProcessFiles(run, about.pop("pid"), rank=life.rank, **about)
    files.heartbeat_ns = life.end_ns
    return files


def seen(run: Path, host: str, at_ns: int) -> None:
    """A host's keeper has said then for the last time where its processes are; `at_ns`: on the run's clock."""
    (run / layout.NOW).mkdir(exist_ok=True)
    about = {
        "format": 1, "run": RUN_ID, "host": host, "boot": "another boot", "timens": 0, "mono_ns": 0,
        "written_ns": WALL_OFFSET_NS + at_ns, "processes": [{"pid": 4711, "rank": 0}],
    }  # fmt: skip
    (run / layout.NOW / f"{host}{layout.NOW_SUFFIX}").write_text(json.dumps(about))


def left(run: Path, kind: str, at_ns: int, **fields: Any) -> None:
    """An incident of rank 1 in `actor_update`, with its page, as a watchman leaves it; `at_ns`: on the run's clock."""
    name, who = "20231114T221325.000", {"who": "rank 1", "hosts": 1, **fields.pop("details", {})}
    incident = Incident(
        name, WALL_OFFSET_NS + at_ns, kind, TOGETHER, "forward_backward", 1, waits_for="rank 0 waits for rank 1",
        reports=2, details=who, **fields,
    )  # fmt: skip
    folder = run / layout.INCIDENTS / name
    folder.mkdir(parents=True)
    (folder / layout.INCIDENT_FILE).write_bytes(incident.as_json(RUN_ID))
    (folder / layout.INCIDENT_PAGE).write_text(incident_page.write_page(incident), encoding="utf-8")


def called(*words: str) -> Any:
    """An `mstxkit` command: how it ended, and what it has written, on a screen so wide that nothing wraps."""
    return testing.CliRunner().invoke(build_application(words[0]), list(words), env={"COLUMNS": "400"})


def said_of(run: Path) -> Said:
    """What report, JSON and page say of it: the same, or this fails. What is next has been done, and ended well."""
    text, page = called("report", str(run)), run.parent / "page.html"
    document = json.loads(called("report", str(run), "--json", "--html", str(page)).output)
    head, first = document["headline"], text.output.splitlines()[0]
    assert first.rstrip(".") == "Verdict: " + ": ".join(filter(None, (head["words"], head["cost"])))
    (shown,) = re.findall(r'<h1 id="verdict">(.*?)</h1>', page.read_text(encoding="utf-8"))
    assert html.unescape(shown) == head["verdict"] == head["words"][:1].upper() + head["words"][1:] + "."
    assert head["next"] in text.output and html.escape(head["next"]) in page.read_text(encoding="utf-8")
    looked = called("top", str(run), "--once")
    assert looked.output.splitlines()[0] == first
    done(head["next"])
    codes = text.exit_code, looked.exit_code
    return Said(first, head["next"].replace(str(run), "RUN"), codes, head["kind"], head["blames"])


def done(command: str) -> None:
    """Do what is next."""
    program, *words = shlex.split(command) or [""]
    if program == "cat":
        assert Path(*words).read_text(encoding="utf-8")
    elif program:
        assert program == "mstxkit"
        ended = called(*words)
        assert ended.exit_code in (0, 1), ended.output
