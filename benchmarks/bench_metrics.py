"""What showing a job costs: a scrape of a job of 10,240 ranks in as many roles and stages as there may be; what the
judge does beside it; and `mstxkit top` at 1,024 ranks on 128 hosts that all say something new.

CPU time, in fresh processes; a scrape by the clock too, over loopback.
"""

from __future__ import annotations

import io
import json
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from .harness import Row

VARIANTS: dict[str, dict[str, str]] = {"scrape": {}, "top": {}, "otlp": {}}
RANKS, TOP_RANKS, RANKS_A_HOST = 10_240, 1_024, 8
_ROLES, _STAGES, _ROUNDS, _LOOKS = 16, 32, 12, 40
_S = 10**9


def measure(variant: str) -> list[Row]:
    """Of one of them."""
    return {"scrape": _of_scrape, "top": _of_top, "otlp": _of_otlp}[variant]()


def _of_scrape() -> list[Row]:
    from mstxkit.store import run_file
    from mstxkit.store.metrics_setting import check_metrics
    from mstxkit.telemetry.outlets import Outlets

    with tempfile.TemporaryDirectory() as folder:
        run, run_id = run_file.open_run_folder(Path(folder, "run"))
        outlets = Outlets(run, run_id, check_metrics("127.0.0.1:0"))
        took_ms, shown_ms, series = [], [], 0
        for step in range(_ROUNDS):
            before_s = time.thread_time()
            outlets.show(_state(step, RANKS), _verdicts(64))
            shown_ms.append(1e3 * (time.thread_time() - before_s))
            began_s = time.perf_counter()
            with urllib.request.urlopen(outlets.served, timeout=60) as answer:
                page = answer.read()
            took_ms.append(1e3 * (time.perf_counter() - began_s))
            series = sum(not line.startswith(b"#") for line in page.splitlines())
        outlets.close()
    note = f"{RANKS:,} ranks, {_ROLES} roles of {_STAGES} stages, 64 verdicts"
    return [
        Row("metrics.series", series, "series", note=note),
        Row("metrics.scrape_ms", statistics.median(took_ms), "ms", note=f"by the clock, {len(page) >> 10} KB"),
        Row("metrics.show_ms", statistics.median(shown_ms[1:]), "ms", note="CPU time of the judge, once a second"),
    ]


def _of_top() -> list[Row]:
    """A look and its picture each second; each host says something new every five seconds."""
    from rich.console import Console
    from rich.live import Live

    from mstxkit.cli import top
    from mstxkit.judging.live_state import LiveReader
    from mstxkit.store import run_file

    with tempfile.TemporaryDirectory() as folder:
        run, run_id = run_file.open_run_folder(Path(folder, "run"))
        (run / "verdicts").mkdir()
        live_reader, spent_s = LiveReader(run, run_id), []
        console = Console(file=io.StringIO(), force_terminal=True, width=120, height=40)
        hosts = TOP_RANKS // RANKS_A_HOST
        with Live(console=console, screen=True, auto_refresh=False) as live:
            for look in range(_LOOKS):
                _say(run, run_id, look, range(hosts) if look == 0 else range(look % 5, hosts, 5))
                before_s = time.process_time()
                live.update(top._draw_picture(console, live_reader.look(), run, console.height), refresh=True)
                spent_s.append(time.process_time() - before_s)
    percent = 100 * statistics.mean(spent_s[2:]) / top._EVERY_S
    note = f"{TOP_RANKS:,} ranks on {hosts} hosts, one look a second, mean"
    return [
        Row("metrics.top_percent", percent, "% of a core", note=note),
        Row(
            "metrics.top_bound_percent", 100 / (1 + top._PAUSES), "% of a core", note="at most, by the pause after each"
        ),
    ]


def _of_otlp() -> list[Row]:
    """Spans of a step of 10 stages as a message."""
    from mstxkit.reading import otlp_spans

    resource, spent_us = otlp_spans.resource_of("run", "0" * 32), []
    for step in range(200):
        before_s = time.thread_time()
        spans = [span for role in _state(step, RANKS, 1, 10).roles for span in otlp_spans.of_role("0" * 32, role)]
        content = otlp_spans.as_protobuf(spans, resource)
        spent_us.append(1e6 * (time.thread_time() - before_s))
    note = f"CPU time, {len(content)} bytes"
    return [Row("metrics.otlp_step_us", statistics.median(spent_us[20:]), "us", note=note)]


def _state(step: int, ranks: int, roles: int = _ROLES, stages: int = _STAGES) -> Any:
    from mstxkit.store.job_file import JobState, Latecomer, RoleFigures, StageFigures

    begin_ns = 1_700_000_000 * _S + step * _S
    of_role = tuple(
        StageFigures(
            f"stage_{n}", 1.0 + n + step, 0.5 + n, n, begin_ns + n * _S, begin_ns + (n + 1) * _S, ranks, 1e4, 0.4
        )
        for n in range(stages)
    )
    late = tuple(Latecomer(rank, f"node-{rank}", "stage_1", 0.1) for rank in range(8))
    listed = [
        RoleFigures(f"role_{n}", step, ranks // roles, 0.1, begin_ns, begin_ns + stages * _S, of_role, late)
        for n in range(roles)
    ]
    return JobState(tuple(listed), ranks // RANKS_A_HOST, written_ns=time.time_ns())


def _verdicts(count: int) -> list[Any]:
    from mstxkit.store.verdicts import COMPUTE, Verdict

    return [Verdict(str(n), 1, 1, COMPUTE, f"stage_{n % 8}", n, "role_0", impact_ratio=0.1) for n in range(count)]


def _say(run: Path, run_id: str, look: int, hosts: range) -> None:
    """What the judge and these hosts leave in the run."""
    from mstxkit.host import folders, identity
    from mstxkit.store import documents, job_file

    job_file.write_state(run, run_id, _state(look, TOP_RANKS, 2, 12))
    if look % 10 == 0:
        lines = b"".join(verdict.line() for verdict in _verdicts(64))
        (run / "verdicts/controller.jsonl").write_bytes(lines)
    folders.make_folder(run / "now")
    for host in hosts:
        processes = [
            {"pid": rank, "rank": rank, "role": "actor", "part": "trainer", "step": look, "in_stage_ns": _S,
             "stage": f"stage_{(rank + look) % 3}"}
            for rank in range(host * RANKS_A_HOST, (host + 1) * RANKS_A_HOST)
        ]  # fmt: skip
        about = {
            "format": 1, "run": run_id, "host": f"node-{host}", "boot": identity.boot_id(),
            "written_ns": time.time_ns(),
            "timens": identity.read_namespace("time"), "mono_ns": time.monotonic_ns(), "processes": processes,
        }  # fmt: skip
        documents.replace_file(run / "now" / f"node-{host}-0.json", json.dumps(about).encode())
