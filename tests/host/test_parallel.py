"""Where a rank stands among parallel groups: of real process groups, of Megatron's state, and why it is not known."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import lives

from mstxkit import faults
from mstxkit.host import parallel

PROGRAM = Path(__file__).parents[1] / "builders" / "grouped_ranks.py"
WITHIN_S = 120


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Rank -> layout -> what it says of itself."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    folder = tmp_path_factory.mktemp("groups")
    command = [sys.executable, str(PROGRAM), str(folder)]
    variables = lives.environment(TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(4)]


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("no groups", [{"dp": [rank, 4]} for rank in range(4)]),
        ("dp x tp", [{"dp": [rank // 2, 2], "tp": [rank % 2, 2]} for rank in range(4)]),
        ("pp x dp x tp", [{"pp": [rank // 2, 2], "dp": [0, 1], "tp": [rank % 2, 2]} for rank in range(4)]),
        ("ddp x fsdp", [{"dp": [rank, 4]} for rank in range(4)]),
        ("rollout", [{"dp": [rank, 4]} for rank in range(4)]),
        ("ulysses", [{"dp": [rank // 2, 2], "sp": [rank % 2, 2]} for rank in range(4)]),
    ],
)
def test_process_groups_that_say_what_they_are_give_each_rank_its_place(
    places: list[Any], layout: str, expected: list[Any]
) -> None:
    assert [place[layout] for place in places] == [[indices, ""] for indices in expected]


@pytest.mark.parametrize("layout", ["all of tp", "without names"])
def test_what_groups_do_not_say_is_not_guessed(places: list[Any], layout: str) -> None:
    for place in places:
        indices, why_not = place[layout]
        assert "dp" not in indices and "do not say which is which" in why_not


def test_before_there_are_any_it_says_so(places: list[Any]) -> None:
    assert places[0]["before"] == [{}, "neither Megatron nor a process group of torch's is set up there"]


def megatron(is_set_up: bool = True, **indices: tuple[int, int]) -> SimpleNamespace:
    """What `megatron.core.parallel_state` answers; of dimensions that an older one has not, nothing."""
    words = {"tp": "tensor_model_parallel", "pp": "pipeline_model_parallel", "dp": "data_parallel"}
    calls = {f"get_{words[name]}_rank": lambda at=at: at for name, (at, _) in indices.items()}
    calls.update({f"get_{words[name]}_world_size": lambda size=size: size for name, (_, size) in indices.items()})
    return SimpleNamespace(model_parallel_is_initialized=lambda: is_set_up, **calls)


def use(monkeypatch: pytest.MonkeyPatch, state: Any, *, torch_is_up: bool = True) -> None:
    """Megatron's state, beside a torch whose groups are up or not."""
    c10d: Any = SimpleNamespace(is_initialized=lambda: torch_is_up)
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", c10d)


def test_megatron_knows_it_best(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, megatron(tp=(1, 2), pp=(0, 1), dp=(3, 4)))

    assert parallel.find_place() == ({"tp": (1, 2), "pp": (0, 1), "dp": (3, 4)}, "")


def test_megatron_is_not_asked_once_torchs_groups_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its own, asks torch for each rank, and that raises: at the end of every job that destroys its groups."""
    state = megatron(tp=(1, 2))
    state.get_tensor_model_parallel_rank = lambda: 1 / 0
    use(monkeypatch, state, torch_is_up=False)

    assert parallel.find_place() == ({}, "neither Megatron nor a process group of torch's is set up there")
    assert faults.counts == {}


def test_megatron_that_is_not_set_up_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, megatron(False, tp=(1, 2)), torch_is_up=False)

    assert parallel.find_place().indices == {}


def test_what_raises_is_a_counted_fault_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, SimpleNamespace(model_parallel_is_initialized=lambda: 1 / 0))
    place = parallel.find_place()

    assert faults.counts == {"parallel.place": 1}
    assert place == ({}, "its parallel groups cannot be read: ZeroDivisionError")
