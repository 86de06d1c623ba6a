"""torch's declarations; tests/frameworks/test_torch_patch.py has them on the real torch."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from mstxkit.patches.torch import PATCH
from mstxkit.patching import registry
from mstxkit.testing import run_under_cann

BY_NAME = {target.name or target.qualname: target for target in PATCH.targets}


def test_without_a_name_autopatch_has_entries_of_torch_and_no_range() -> None:
    chosen = [patch for patch, _ in registry.choose_patches(()) if patch.framework.startswith("torch")]

    assert {target.kind for patch in chosen for target in patch.targets} == {"value"}
    assert all(target in PATCH.targets for patch in chosen for target in patch.targets)


def test_a_plain_save_is_no_stage_and_does_not_storm() -> None:
    """Pickling a tensor calls it too."""
    save = BY_NAME["torch.save"]

    assert (save.stage, save.max_per_s) == (None, 100)


def test_where_a_save_goes_is_a_path_or_left_to_be_named_by_its_type() -> None:
    attributes = BY_NAME["torch.save"].attributes
    assert callable(attributes)
    stream = object()

    assert attributes({}, "a.pt") == {"to": "a.pt"}
    assert attributes({}, f=Path("a.pt")) == {"to": "a.pt"}
    assert attributes({}, stream) == {"to": stream}


def test_where_a_distributed_checkpoint_goes_is_told_where_the_caller_says_so() -> None:
    attributes = BY_NAME["checkpoint.save"].attributes
    assert callable(attributes)

    assert attributes({}, checkpoint_id=Path("c"), planner=None) == {"to": "c"}
    assert attributes({}) == {}


BESIDE_TORCH_NPU = """
import io, json
import mstxkit
import torch, torch_npu
from mstxkit.testing import captured

mstxkit.autopatch("torch")
with captured() as seen:
    list(torch.utils.data.DataLoader([1, 2], batch_size=1))
    torch.save({}, io.BytesIO())
print(json.dumps([(one.name, one.error) for one in seen.ranges]))
"""


@pytest.mark.npu
@pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu")
def test_what_torch_npu_replaces_does_not_hide_batches_and_saves() -> None:
    run = run_under_cann(BESIDE_TORCH_NPU)

    assert run.returncode == 0, run.stderr
    found = [tuple(one) for one in json.loads(run.stdout.splitlines()[-1])]
    assert found == [("DataLoader.fetch", False), ("DataLoader.fetch", False), ("torch.save", False)]
