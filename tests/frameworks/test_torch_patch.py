"""torch's targets on the real torch: what a training loop does becomes ranges, and torch is as before afterwards."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterator

import pytest

import mstxkit
from mstxkit.patches.torch import PATCH
from mstxkit.patching.report import APPLIED, Reason
from mstxkit.testing import captured

pytestmark = [pytest.mark.days("odd"), pytest.mark.frameworks]

OPTIMIZERS = [target.qualname.partition(".")[0] for target in PATCH.targets if target.path.startswith("torch.optim.")]


@pytest.fixture
def torch() -> Iterator[ModuleType]:
    import torch
    import torch.distributed.checkpoint

    yield torch
    mstxkit.unpatch()


def recorded(action: Callable[[], object]) -> list[tuple[str, dict[str, Any], bool]]:
    """Name, attributes and error of what an action does while torch is patched."""
    mstxkit.autopatch("torch")
    with captured() as seen:
        action()
    return [(one.name, one.attributes, one.error) for one in seen.ranges]


def update(torch: ModuleType, kind: str) -> None:
    """Gradients, and a step of an optimizer of this kind, with the schedule that wraps it too."""
    weight = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = getattr(torch.optim, kind)([weight], lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    weight.sum().backward()
    if kind == "SparseAdam":
        weight.grad = weight.grad.to_sparse()
    optimizer.step(*([weight.sum] if kind == "LBFGS" else []))
    schedule.step()


def test_every_target_is_in_this_torch(torch: ModuleType) -> None:
    states = mstxkit.autopatch("torch").of("torch").targets

    left = {state.path: state.reason for state in states if state.state != APPLIED}
    assert left in ({}, {"torch.optim.adamw:AdamW.step": Reason.HAS_RANGE})  # it inherits Adam's until there is one


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_step_of_any_optimizer_is_one_range(torch: ModuleType, kind: str) -> None:
    assert recorded(lambda: update(torch, kind)) == [("Optimizer.step", {"optimizer": kind}, False)]


FIRST_MADE_WHILE_PATCHED = """
import mstxkit, torch
before = {kind: getattr(torch.optim, kind).step for kind in ("SGD", "Adam", "AdamW")}
mstxkit.autopatch("torch")
for kind in before:
    getattr(torch.optim, kind)([torch.nn.Parameter(torch.ones(1))])
mstxkit.unpatch()
for kind, step in before.items():
    now = getattr(torch.optim, kind).step
    print(kind, now.hooked, now.__wrapped__ is step, [cell.cell_contents for cell in now.__closure__] == [step])
"""


def test_what_torch_has_wrapped_around_a_patched_step_is_unpatched_too() -> None:
    """The first instance of an optimizer's class wraps the class's `step`, whatever it is by then."""
    command = [sys.executable, "-W", "ignore", "-c", FIRST_MADE_WHILE_PATCHED]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.stdout.splitlines() == [f"{kind} True True True" for kind in ("SGD", "Adam", "AdamW")], done.stderr


def test_batches_are_ranges_and_the_end_of_an_epoch_is_none(torch: ModuleType) -> None:
    loader = torch.utils.data.DataLoader(list(range(4)), batch_size=2)

    assert recorded(lambda: list(loader)) == [("DataLoader.fetch", {}, False)] * 2


def test_waiting_for_a_worker_is_a_range(torch: ModuleType) -> None:
    loader = torch.utils.data.DataLoader(list(range(4)), batch_size=2, num_workers=1)

    waits = [("DataLoader.wait", {"workers": 1, "batch": batch}, False) for batch in range(2)]
    assert recorded(lambda: list(loader)) == waits


def test_the_end_of_an_iterable_dataset_is_a_fetch_that_finds_nothing(torch: ModuleType) -> None:
    class Counting(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[int]:
            return iter(range(2))

    fetched = recorded(lambda: list(torch.utils.data.DataLoader(Counting())))

    assert [failed for _, _, failed in fetched] == [False, False, False]  # StopIteration is no failure


def test_a_save_says_where_it_goes(torch: ModuleType, tmp_path: Path) -> None:
    def saves() -> None:
        torch.save({}, tmp_path / "a.pt")
        torch.serialization.save({}, str(tmp_path / "b.pt"))
        pickle.dumps(torch.ones(1))

    written = [(name, attributes["to"]) for name, attributes, _ in recorded(saves)]

    assert written == [
        ("torch.save", str(tmp_path / "a.pt")), ("torch.save", str(tmp_path / "b.pt")),
        ("torch.save", io.BytesIO.__name__),
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_distributed_checkpoint_is_a_stage(torch: ModuleType, tmp_path: Path) -> None:
    mstxkit.autopatch("torch")
    checkpoint = torch.distributed.checkpoint

    with captured() as seen:
        checkpoint.save({"weight": torch.ones(2)}, checkpoint_id=tmp_path / "c")

    assert [(one.name, one.attributes) for one in seen.ranges if one.depth == 0] == [
        ("checkpoint.save", {"to": str(tmp_path / "c")})
    ]
    assert {one.stage for one in seen.ranges} == {"save_checkpoint"}


def test_unpatching_puts_back_what_was_there(torch: ModuleType) -> None:
    for kind in OPTIMIZERS:
        update(torch, kind)
    before = held()

    mstxkit.autopatch("torch")
    during = held()
    mstxkit.unpatch()

    assert held() == before
    assert len([place for place in before if during[place] != before[place]]) >= len(PATCH.targets)


def held() -> dict[tuple[str, str], int]:
    """What all modules of torch and the classes in them hold, by its id."""
    found: dict[tuple[str, str], int] = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "torch" and isinstance(module, ModuleType):
            for attribute, value in list(vars(module).items()):
                found[(name, attribute)] = id(value)
                if issubclass(type(value), type) and value.__module__ == name:
                    found.update({(f"{name}:{attribute}", key): id(one) for key, one in list(vars(value).items())})
    return found
