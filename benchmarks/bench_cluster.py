"""The judge of a job of 10,240 ranks on 1,280 hosts, and of 1,024 on 128: how long after a step's last batch its
verdict is there, what share of a core that takes at a step a second, and how much memory; and a host's own share.

Batches are made directly, as agents make them: 8 ranks of 10 stages a host and step. CPU time, in fresh processes.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator

from .harness import Row

# Hosts of a job.
VARIANTS: dict[str, dict[str, str]] = {"1024": {}, "10240": {}, "host": {}}
RANKS_A_HOST, STAGES, STEPS, WARM_STEPS = 8, 10, 40, 8
_MS, _STEP_NS = 1_000_000, 1_000_000_000
_RUN = "0" * 32


def measure(variant: str) -> list[Row]:
    """Of the controller for so many ranks; `host`: of the agent."""
    return _of_host() if variant == "host" else _of_job(int(variant))


def _of_job(ranks: int) -> list[Row]:
    from mstxkit.judging.controller import Controller
    from mstxkit.store import batches

    controller = Controller("run")
    hosts = ranks // RANKS_A_HOST
    spent_s, verdict_s = [], []
    for step in range(STEPS):
        frames = [_frame(host, step) for host in range(hosts)]
        now_s = 1e9 + step
        before = time.process_time()
        for frame in frames:
            (batch,) = batches.decode_batches(frame, _RUN).batches
            if controller.is_due(now_s):
                controller.work(now_s)
            controller.take(batch, now_s)
        last = time.process_time()
        judged = controller.work(now_s).steps + controller.work(now_s + 0.5).steps
        assert judged == 1, f"step {step} was judged {judged} times"
        if step >= WARM_STEPS:
            verdict_s.append(time.process_time() - last)
            spent_s.append(time.process_time() - before)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    key = f"cluster.ranks_{ranks}"
    note = f"{hosts} hosts, {RANKS_A_HOST * STAGES} rows each a step, {STEPS} steps"
    waits_s = 0.5  # until a step is settled, and until it is looked whether it is
    return [
        Row(f"{key}_verdict_s", max(verdict_s) + waits_s, "s", note=f"after the last batch of a step; {note}"),
        Row(f"{key}_core", statistics.median(spent_s), "of a core", note="at a step a second"),
        Row(f"{key}_mb", peak_mb, "MB", note="peak, the batches of one step in it"),
    ]


def _frame(host: int, step: int) -> bytes:
    from mstxkit.store import batches
    from mstxkit.store.batches import HandingProcess

    base_ns = step * _STEP_NS + 10**12
    ranks = range(host * RANKS_A_HOST, (host + 1) * RANKS_A_HOST)
    stages = tuple(f"stage_{number}" for number in range(STAGES))
    announced = [
        HandingProcess(number, f"h{host}-{rank}-1", rank, "actor", "trainer", rank, world_size=1 << 14, stages=stages)
        for number, rank in enumerate(ranks)
    ]
    head = {
        "run": _RUN, "host": f"h{host}", "place": f"h{host}", "boot": f"b{host}", "sender": f"s{host}", "number": step,
        "clock": [base_ns + _STEP_NS, base_ns + _STEP_NS + 10**18, 100], "settings": 0,
        "processes": [process.as_json() for process in announced] if step == 0 else [],
    }  # fmt: skip
    parts = [(batches.STAGES, number, _rows(rank, step, base_ns)) for number, rank in enumerate(ranks)]
    return batches.encode_batch(head, parts)


def _rows(rank: int, step: int, base_ns: int) -> bytes:
    from mstxkit.store.summaries import StageSummary

    rows = []
    for stage in range(STAGES):
        entered_ns = base_ns + stage * 90 * _MS
        took_ns = 80 * _MS + (rank * 7919 + step * 104729 + stage * 31) % (2 * _MS)
        rows.append(
            StageSummary(step, stage + 1, 1, entered_ns, entered_ns + took_ns, took_ns, None, took_ns, 1000).pack()
        )
    return b"".join(rows)


def _of_host() -> list[Row]:
    """An agent whose 8 processes hand over a step between two turns."""
    from mstxkit.cluster import agent

    with tempfile.TemporaryDirectory() as folder:
        run, live = Path(folder, "run"), Path(folder, "live")
        run.mkdir()
        live.mkdir()
        rings = list(_rings(live))
        agent.EVERY_S = 0.0
        passes_on = agent.Agent(run, _RUN, live, judges=False)
        spent_ns = []
        for step in range(200):
            for rank, ring in enumerate(rings):
                document = {
                    "stages": [f"stage_{n}" for n in range(STAGES)],
                    "cpu": [10**15 + step, 10**12 + step, 10**11],
                }
                ring.put(_rows(rank, step, step * _STEP_NS + 1), document)
            before = time.thread_time_ns()
            passes_on.turn()
            spent_ns.append(time.thread_time_ns() - before)
        written = sum(file.stat().st_size for file in (run / "summaries").iterdir())
        assert written > 200 * RANKS_A_HOST * STAGES * 40
    return [
        Row("cluster.host_batch_ms", statistics.median(spent_ns) / 1e6, "ms", note="CPU time of the keeper's thread"),
        Row("cluster.host_batch_bytes", written / 200, "bytes", note=f"{RANKS_A_HOST} ranks, {STAGES} stages"),
    ]


def _rings(live: Path) -> Iterator[Any]:
    from mstxkit.store.handed_over import SummaryRing

    for rank in range(RANKS_A_HOST):
        (live / f"host-{rank}-1.live").write_bytes(b"\0" * 8192)
        yield SummaryRing(live / f"host-{rank}-1.sums")
