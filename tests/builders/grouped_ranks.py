"""Four ranks with real process groups of torch's on the CPU, by gloo. Not a test: run by one.

    python grouped_ranks.py FOLDER            says where each rank stands in each layout: FOLDER/<rank>.json
    python grouped_ranks.py FOLDER RUN        trains into RUN, dp 2 × tp 2, until FOLDER/end is there

Imports torch once, and forks from there.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Callable

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import mstxkit
from mstxkit import capturing
from mstxkit.escalation.duty import beginning, duty
from mstxkit.host import parallel

RANKS = 4
STAGE = "actor_update"


def mesh(*sizes: int, names: tuple[str, ...]) -> Any:
    return init_device_mesh("cpu", sizes, mesh_dim_names=names)


def rollout() -> Any:
    """As verl's hybrid worker: FSDP over all ranks, and a rollout of two on each half (workers/engine_workers.py)."""
    return mesh(4, names=("fsdp",)), mesh(2, 2, 1, names=("dp", "infer_tp", "infer_pp"))


def ulysses() -> Any:
    """As verl's FSDP engine with sequence parallelism (workers/engine/fsdp/transformer_impl.py)."""
    return mesh(4, names=("fsdp",)), mesh(2, 2, names=("dp", "sp"))


LAYOUTS: dict[str, Callable[[], Any]] = {
    "no groups": lambda: None,
    "dp x tp": lambda: mesh(2, 2, names=("dp", "tp")),
    "pp x dp x tp": lambda: mesh(2, 1, 2, names=("pp", "dp", "tp")),
    "ddp x fsdp": lambda: mesh(2, 2, names=("ddp", "fsdp")),
    "rollout": rollout,
    "ulysses": ulysses,
    "all of tp": lambda: mesh(1, 4, names=("dp", "tp")),
    "without names": lambda: [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])],
}


def join(folder: Path, name: str, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/{name}.store", rank=rank, world_size=RANKS)


def stand(folder: Path, rank: int) -> None:
    places = {"before": parallel.find_place()}
    for number, (name, made) in enumerate(LAYOUTS.items()):
        join(folder, f"layout{number}", rank)
        kept = made()
        places[name] = parallel.find_place()
        dist.barrier()
        dist.destroy_process_group()
        del kept
    (folder / f"{rank}.json").write_text(
        json.dumps({name: [place.indices, place.why_not] for name, place in places.items()})
    )


def train(folder: Path, rank: int, run: str) -> None:
    from builders.rank_on_duty import Recording

    beginning.WAITS_AT_MOST_S = 20.0  # a busy machine puts no session off
    policy, session = duty.policy_of, Recording()
    duty.policy_of = lambda settings: policy(settings)._replace(transport_s=0.3)
    duty.OneSession = lambda: session  # type: ignore[misc, assignment]
    duty.import_ahead = lambda begins=True: False  # nothing here needs the 800 modules of torch's profiler
    join(folder, "training", rank)
    kept = mesh(2, 2, names=("dp", "tp"))
    mstxkit.capture(run, poll_every_s=0.02, cooldown_s=0)
    asked: dict[str, str] = {}
    while not is_told(folder, "end"):
        mstxkit.step()
        with mstxkit.stage(STAGE):
            time.sleep(0.005)
        if is_told(folder, "ask") and not asked:
            asked["id"] = mstxkit.escalate(STAGE, ranks="dp:1", steps=2).id
    capturing.stop_recording()
    orders = [[order.request, order.step] for order in session.orders]
    (folder / f"{rank}.json").write_text(json.dumps({**asked, "orders": orders, "wrong": session.wrong}))
    dist.destroy_process_group()
    del kept


def is_told(folder: Path, word: str) -> bool:
    """By all ranks in the same step."""
    import torch

    told = torch.tensor([int((folder / word).exists())])
    dist.broadcast(told, 0)
    return bool(told.item())


def main() -> int:
    folder, run = Path(sys.argv[1]), sys.argv[2:]
    children = []
    for rank in range(RANKS):
        children.append(os.fork())
        if children[-1] == 0:
            status = 1
            try:
                train(folder, rank, *run) if run else stand(folder, rank)
                status = 0
            except BaseException:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(status)
    return max(os.waitpid(pid, 0)[1] for pid in children)


if __name__ == "__main__":
    sys.exit(bool(main()))
