"""torch.distributed's own functions while entries are kept: nothing about them changes, and torch is put back."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterator

import pytest
from builders import lives

import mstxkit
from mstxkit.recorder import entries
from mstxkit.recorder.torch_rings import METHODS
from mstxkit.store import collectives
from mstxkit.store.collectives import CollectiveEntry
from mstxkit.testing import captured

pytestmark = [pytest.mark.days("even"), pytest.mark.frameworks]


@pytest.fixture
def dist(tmp_path: Path) -> Iterator[ModuleType]:
    """One rank on gloo, patched."""
    import torch.distributed as dist

    mstxkit.autopatch("torch")
    entries.forget_entries()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield dist
    if dist.is_initialized():
        dist.destroy_process_group()
    mstxkit.unpatch()


def entered(action: Callable[[], object]) -> list[CollectiveEntry]:
    """What an action enters."""
    with captured():
        action()
    return list(collectives.unpack_entries(entries.take_entries(everything=True)[0]))


def names(rows: list[CollectiveEntry]) -> list[str]:
    return [collectives.OPERATIONS[collectives.operation_in(row.operation)] for row in rows]


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
def test_each_function_is_one_entry_whatever_it_is_made_of(dist: ModuleType) -> None:
    import torch

    one = torch.ones(1)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("all_reduce", lambda: dist.all_reduce(one)),
        ("all_gather", lambda: dist.all_gather([torch.ones(1)], one)),
        ("all_gather", lambda: dist.all_gather_into_tensor(torch.ones(1), one)),
        ("reduce_scatter", lambda: dist.reduce_scatter_tensor(torch.ones(1), one)),
        ("all_to_all", lambda: dist.all_to_all_single(torch.ones(1), one)),
        ("broadcast", lambda: dist.broadcast(one, 0)),
        ("barrier", dist.barrier),
        ("scatter", lambda: dist.scatter(one, [torch.ones(1)])),
        ("gather", lambda: dist.gather(one, [torch.ones(1)])),
        ("reduce", lambda: dist.reduce(one, 0)),
    ]
    rows = entered(lambda: [call() for _, call in calls])

    assert names(rows) == [name for name, _ in calls]
    assert [row.sequence for row in rows] == list(range(len(calls)))
    assert all(row.entered_ns < row.left_ns for row in rows)


def test_what_is_not_waited_for_has_no_end_and_what_failed_neither(dist: ModuleType) -> None:
    import torch

    def fail() -> None:
        with pytest.raises(RuntimeError):
            dist.broadcast(torch.ones(1).to_sparse(), 0)

    waiting: list[Any] = []
    rows = entered(lambda: [waiting.append(dist.all_reduce(torch.ones(1), async_op=True)), fail()])

    assert [row.left_ns for row in rows] == [0, 0]
    assert waiting[0].wait()


def test_nothing_is_kept_while_nothing_is_recorded(dist: ModuleType) -> None:
    dist.barrier()

    assert entries.take_entries(everything=True) == (b"", [])


def test_a_group_that_is_destroyed_is_let_go_and_another_one_is_counted_anew(dist: ModuleType, tmp_path: Path) -> None:
    first = entered(dist.barrier)
    group = weakref.ref(dist.group.WORLD)
    dist.destroy_process_group()
    gc.collect()
    is_gone = group() is None
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/other", rank=0, world_size=1)
    second = entered(dist.barrier)

    assert is_gone
    assert (first[0].sequence, second[0].sequence) == (0, 0)
    assert first[0].group != second[0].group


def test_a_group_that_torch_does_not_know_is_used_as_ever(dist: ModuleType) -> None:
    import torch
    from torch._C._distributed_c10d import ProcessGroup

    stranger = ProcessGroup(dist.distributed_c10d._get_default_store(), 0, 1)
    with captured(), pytest.raises(RuntimeError):
        stranger.allreduce([torch.ones(1)])

    assert entries.take_entries(everything=True)[0] == b""


def test_torch_has_its_own_methods_again(dist: ModuleType) -> None:
    mstxkit.unpatch()

    for name in METHODS:
        assert type(vars(dist.ProcessGroup)[name]).__name__ == "instancemethod"
    assert type(vars(dist.distributed_c10d.Work)["wait"]).__name__ == "instancemethod"


COMPILED = """
import sys
import mstxkit
if sys.argv[2] == "patched":
    mstxkit.autopatch("torch")
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)

def work(x):
    y = x * 2
    dist.all_reduce(y)
    z = y + 1
    dist.barrier()
    return z * 3

if sys.argv[2] == "patched":
    mstxkit.capture(sys.argv[1] + ".run")
explained = torch._dynamo.explain(work)(torch.ones(2))
whole = torch.compile(lambda x: (dist.all_reduce(x), x + 1)[1], backend="eager", fullgraph=True)
print(explained.graph_count, explained.graph_break_count, whole(torch.ones(2)).tolist())
"""


def test_torch_compile_makes_the_same_graphs(tmp_path: Path) -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", COMPILED, str(tmp_path / how), how], env=lives.environment(), capture_output=True,
            text=True, timeout=110, check=False,
        )
        for how in ("plain", "patched")
    ]  # fmt: skip

    assert said[0].stdout, said[0].stderr
    assert said[1].stdout == said[0].stdout, said[1].stderr
