"""What tools need to know of the other ranks: in session.json, and in the data as torch_npu itself would say it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mstxkit.profiling import metadata, presets
from mstxkit.store.session_file import Order

SIZES = {
    "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "data_parallel_size": 4,
    "context_parallel_size": 1, "expert_model_parallel_size": 1,
}  # fmt: skip


@pytest.fixture
def megatron(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The names of Megatron-LM core 0.12 `megatron/core/parallel_state.py` that are asked."""
    state, arguments = ModuleType("parallel_state"), ModuleType("global_vars")
    state.model_parallel_is_initialized = lambda: True  # type: ignore[attr-defined]
    for key, value in SIZES.items():
        setattr(state, f"get_{key.replace('_size', '_world_size')}", lambda value=value: value)
    arguments._GLOBAL_ARGS = type("Namespace", (), {"sequence_parallel": True})()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    monkeypatch.setitem(sys.modules, "megatron.training.global_vars", arguments)
    c10d: Any = SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", c10d)
    return state


def order(tmp_path: Path, world_size: int = 16, role: str = "actor") -> Order:
    return Order(tmp_path, "a" * 32, 3, world_size, role, "actor_update", 7, presets.load_preset("full"), "ab" * 8)


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def test_megatrons_sizes_are_told_by_its_own_names(megatron: ModuleType) -> None:
    assert metadata.distributed_args(3, 16) == {**SIZES, "sequence_parallel": True, "rank": 3, "world_size": 16}


def test_where_megatron_is_not_set_up_rank_and_world_size_are_all(megatron: ModuleType) -> None:
    megatron.model_parallel_is_initialized = lambda: False

    assert metadata.distributed_args(3, 16) == {"rank": 3, "world_size": 16}


def test_nothing_is_imported_for_it() -> None:
    assert metadata.distributed_args(0, 1) == {"rank": 0, "world_size": 1}
    assert "megatron" not in sys.modules


def test_what_torch_npu_wrote_stays_and_what_it_lacks_is_added(megatron: ModuleType, tmp_path: Path) -> None:
    known = metadata.distributed_args(3, 16)
    (tmp_path / "profiler_metadata.json").write_text(json.dumps({"trace_id": "F0", "role": "its own"}))
    metadata.complete_metadata(tmp_path, order(tmp_path), known)

    found = read(tmp_path / "profiler_metadata.json")
    assert found == {
        "trace_id": "F0",
        "role": "its own",
        "distributed_args": known,
        "mstxkit": {
            "run": "a" * 32, "request": "ab" * 8, "stage": "actor_update", "step": 7, "rank": 3, "world_size": 16,
        },
    }  # fmt: skip


def test_distributed_args_of_the_program_itself_are_not_replaced(megatron: ModuleType, tmp_path: Path) -> None:
    """MindSpeed-LLM adds them to a profiler of its own."""
    (tmp_path / "profiler_metadata.json").write_text(json.dumps({"distributed_args": {"rank": 9}}))
    metadata.complete_metadata(tmp_path, order(tmp_path), metadata.distributed_args(3, 16))

    assert read(tmp_path / "profiler_metadata.json")["distributed_args"] == {"rank": 9}


def test_without_sizes_tools_are_not_told_wrong_ones(tmp_path: Path) -> None:
    """msprof-analyze takes sizes that are left out for 1, and refuses the world size then."""
    metadata.complete_metadata(tmp_path, order(tmp_path, role=""), {"rank": 3, "world_size": 16})

    assert list(read(tmp_path / "profiler_metadata.json")) == ["mstxkit"]


def test_metadata_that_cannot_be_read_are_left_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "profiler_metadata.json").write_text("half of")
    metadata.complete_metadata(tmp_path, order(tmp_path), {})

    assert (tmp_path / "profiler_metadata.json").read_text() == "half of"


def test_a_rank_that_the_profiler_did_not_know_is_named(tmp_path: Path) -> None:
    (tmp_path / "profiler_info.json").write_text(json.dumps({"config": {}}))
    metadata.complete_metadata(tmp_path, order(tmp_path), {})

    assert read(tmp_path / "profiler_info_3.json") == {"config": {}, "rank_id": 3}
    assert not (tmp_path / "profiler_info.json").exists()


def test_a_rank_that_it_knew_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "profiler_info_5.json").write_text(json.dumps({"rank_id": 5}))
    metadata.complete_metadata(tmp_path, order(tmp_path), {})

    assert sorted(path.name for path in tmp_path.glob("profiler_info*")) == ["profiler_info_5.json"]


def test_a_process_alone_has_no_rank_to_name(tmp_path: Path) -> None:
    (tmp_path / "profiler_info.json").write_text("{}")
    metadata.complete_metadata(tmp_path, order(tmp_path, world_size=1), {})

    assert (tmp_path / "profiler_info.json").exists()


def test_nothing_is_said_of_a_device_where_data_are_no_folder(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        metadata.complete_metadata(tmp_path / "gone", order(tmp_path), {})
