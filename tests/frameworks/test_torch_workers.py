"""Workers of a real DataLoader: they have no step of the loop's, and their fetches the number of the batch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from builders import soak

import mstxkit

pytestmark = [pytest.mark.days("odd"), pytest.mark.daily(3), pytest.mark.frameworks]

_LIMIT_S = 300
PROGRAM = """
import json, sys
import torch, mstxkit
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Items(Dataset):
    def __len__(self):
        return 6

    @mstxkit.mstx_timer("load", attributes=lambda self, i: {"i": i})
    def __getitem__(self, i):
        return i

class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(6))

class Nested(Items):
    def __getitem__(self, i):
        return sum(int(x) for x in DataLoader([i, i]))

if __name__ == "__main__":
    run, dataset, options, how = sys.argv[1], globals()[sys.argv[2]](), json.loads(sys.argv[3]), sys.argv[4]
    mstxkit.autopatch("torch")
    mstxkit.capture(run)
    mstxkit.step(10)
    loader = DataLoader(dataset, batch_size=2, **options)
    with mstxkit.stage("train"):
        for epoch in range(2):
            for at, batch in enumerate(loader):
                if how == "every second" and at % 2 == 0 or how == "each":
                    mstxkit.step()
                with mstxkit.mstx_range("use", batch=at):
                    pass
"""
FORK, SPAWN = {"multiprocessing_context": "fork"}, {"multiprocessing_context": "spawn"}
# How they begin, and whether they stay for the next epoch.
WORKERS = [
    pytest.param(context, persistent, id=f"{context['multiprocessing_context']}-{how}")
    for context in (FORK, SPAWN)
    for persistent, how in ((False, "new each epoch"), (True, "persistent"))
]


class Row(NamedTuple):
    """One range: where, its name, step, stage and attributes."""

    part: str
    name: str
    step: int | None
    stage: str | None
    attributes: dict[str, Any]


def rows(folder: Path, dataset: str, how: str = "each", **options: Any) -> list[Row]:
    """What a loop and its workers record over two epochs."""
    program, run = folder / "loop.py", folder / "run"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-W", "ignore", str(program), str(run), dataset, json.dumps(options), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    opened = mstxkit.open_run(run)
    parts = {row["pid"]: row["part"] or "" for row in opened.processes().iter_rows(named=True)}
    assert {row["faults"] for row in opened.processes().iter_rows(named=True)} == {0}, done.stderr[-2000:]
    found = opened.ranges().sort("start_ns").iter_rows(named=True)
    return [
        Row(parts[row["pid"]], row["name"], row["step"], row["stage"], json.loads(row["attributes"] or "{}"))
        for row in found
    ]


def of_workers(found: list[Row]) -> list[Row]:
    return [row for row in found if row.part.startswith("dataloader")]


@pytest.mark.parametrize("context", soak.sample([FORK, SPAWN], 1), ids=str)
def test_a_worker_has_neither_step_nor_stage_of_the_loop(tmp_path: Path, context: dict[str, str]) -> None:
    found = of_workers(rows(tmp_path, "Items", num_workers=2, **context))

    assert len([row for row in found if row.name == "load"]) == 12
    assert {(row.step, row.stage) for row in found} == {(None, None)}
    assert {row.part for row in found} == {"dataloader 0", "dataloader 1"}


@pytest.mark.parametrize(("context", "persistent"), soak.sample(WORKERS, 1))
def test_a_fetch_has_the_number_of_its_batch_in_each_epoch(
    tmp_path: Path, context: dict[str, str], persistent: bool
) -> None:
    found = rows(tmp_path, "Items", num_workers=2, persistent_workers=persistent, prefetch_factor=2, **context)

    fetched = sorted(row.attributes["batch"] for row in of_workers(found) if row.name == "DataLoader.fetch")
    assert fetched == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("how", "steps"), [("each", [11, 12, 13, 14, 15, 16]), ("every second", [11, 11, 12, 13, 13, 14])]
)
def test_the_loop_knows_the_step_of_each_batch_by_its_number(tmp_path: Path, how: str, steps: list[int]) -> None:
    """Also where gradients are accumulated: the number is no step."""
    found = rows(tmp_path, "Items", how, num_workers=1, **FORK)

    used = [row.step for row in found if row.name == "use"]
    assert used == steps
    waited = [row.attributes["batch"] for row in found if row.name == "DataLoader.wait"]
    assert waited == [0, 1, 2] * 2


def test_without_workers_the_loop_fetches_in_its_own_step(tmp_path: Path) -> None:
    found = [row for row in rows(tmp_path, "Items", num_workers=0) if row.name == "DataLoader.fetch"]

    assert [(row.step, row.stage, row.attributes) for row in found] == [(n, "train", {}) for n in range(10, 16)]


def test_batches_of_a_stream_are_numbered_too(tmp_path: Path) -> None:
    """The fetch that finds the end has a number as well: it was asked for."""
    found = of_workers(rows(tmp_path, "Stream", num_workers=1, **FORK))

    assert {0, 1, 2} <= {row.attributes["batch"] for row in found if row.name == "DataLoader.fetch"}
    assert {row.step for row in found} == {None}


def test_a_loader_inside_of_a_dataset_does_not_take_the_number(tmp_path: Path) -> None:
    found = [row for row in of_workers(rows(tmp_path, "Nested", num_workers=1, **FORK)) if row.name != "load"]

    assert sorted(row.attributes["batch"] for row in found if row.attributes) == [0, 0, 1, 1, 2, 2]
    assert len([row for row in found if not row.attributes]) == 24
