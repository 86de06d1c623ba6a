"""Ranges for a training loop of one's own: what it waits for data, optimizer steps, checkpoints. Off by default.

Source: torch 2.13.0. torch_npu 2.13.0 has ranges of its own for two of these, `profiler/_add_mstx_patch.py`:
"dataloader", with one range id for all loaders and threads, around `__next__` of the iterator, and "save_checkpoint"
around `torch.serialization.save`, not `torch.save`. They stay as they are; the targets lie where they are not.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from ..patching.declare import Patch, Target
from ..recorder import torch_rings
from . import _torch_batches


def _read_file_name(obj: Any, f: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Where `torch.save` writes: a path, or the type of an open file."""
    return {"to": str(f) if isinstance(f, PurePath) else f}


def _checkpoint_of(state_dict: Any, **kwargs: Any) -> dict[str, Any]:
    """Where a distributed checkpoint goes, as far as the caller says."""
    where = kwargs.get("checkpoint_id")
    return {} if where is None else {"to": str(where) if isinstance(where, PurePath) else where}


def name_class(self: Any, *args: Any, **kwargs: Any) -> dict[str, str]:
    """Which optimizer it is."""
    return {"optimizer": type(self).__name__}


# `__next__` of a loader's iterator is neither: torch_npu calls the one that it found at its import, and the end of each
# epoch raises StopIteration through it. Below it, a map-style dataset's batch is fetched in the loop's own process, or
# in a worker for which the loop waits. Source: torch/utils/data/_utils/fetch.py, torch/utils/data/dataloader.py:1433.
# A worker's fetch and the loop's wait have the number of the batch; a worker has no step: `_torch_batches.py`.
_FETCH, _WORKER = "torch.utils.data._utils.fetch", "torch.utils.data._utils.worker"
_DATA = (
    Target(f"{_FETCH}:_MapDatasetFetcher.fetch", name="DataLoader.fetch", attributes=_torch_batches.count_batch),
    Target(f"{_FETCH}:_IterableDatasetFetcher.fetch", name="DataLoader.fetch", attributes=_torch_batches.count_batch),
    Target(
        "torch.utils.data.dataloader:_MultiProcessingDataLoaderIter._get_data", name="DataLoader.wait",
        attributes={"workers": "self._num_workers", "batch": "self._rcvd_idx"},
    ),
    Target(f"{_WORKER}:_worker_loop", kind="wrap", value="mstxkit.patches._torch_batches:worker_loop"),
)  # fmt: skip

# Each class has its `step`, which the first instance of the class wraps once more, for its hooks
# (`Optimizer.profile_hook_step`, torch/optim/optimizer.py:508): there is no one place that all of them run through.
# AdamW inherits it from Adam: Adam's target is both.
_OPTIMIZERS = (
    ("adam", "Adam"), ("adamw", "AdamW"), ("sgd", "SGD"), ("_adafactor", "Adafactor"), ("_muon", "Muon"),
    ("adadelta", "Adadelta"), ("adagrad", "Adagrad"), ("adamax", "Adamax"), ("asgd", "ASGD"), ("lbfgs", "LBFGS"),
    ("nadam", "NAdam"), ("radam", "RAdam"), ("rmsprop", "RMSprop"), ("rprop", "Rprop"), ("sparse_adam", "SparseAdam"),
)  # fmt: skip

# `torch.save` also serves the pickling of tensors (torch/storage.py:247): it is no stage, and no more than 100 a second
# are recorded. Distributed checkpoints: torch/distributed/checkpoint/state_dict_saver.py:89, 221.
_SAVER = "torch.distributed.checkpoint.state_dict_saver"
_SAVE = (
    Target("torch:save", name="torch.save", attributes=_read_file_name, max_per_s=100),
    Target(f"{_SAVER}:save", name="checkpoint.save", stage="save_checkpoint", attributes=_checkpoint_of),
    Target(f"{_SAVER}:async_save", name="checkpoint.async_save", stage="save_checkpoint", attributes=_checkpoint_of),
)

# Entries into collectives, sends and receives: no ranges. `autopatch()` has them too.
_C10D = "torch.distributed.distributed_c10d"
_ENTRIES = (
    *(
        Target(f"{_C10D}:ProcessGroup.{name}", kind="value", value=f"mstxkit.recorder.entries:{name}")
        for name in torch_rings.METHODS
    ),
    Target(f"{_C10D}:Work.wait", kind="value", value="mstxkit.recorder.entries:wait"),
)
ALWAYS = (Patch(framework="torch.distributed", versions="2.13.0", targets=_ENTRIES),)

PATCH = Patch(
    framework="torch",
    versions="2.13.0",
    targets=(
        *_DATA,
        *(
            Target(f"torch.optim.{module}:{name}.step", name="Optimizer.step", attributes=name_class)
            for module, name in _OPTIMIZERS
        ),
        *_SAVE,
        *_ENTRIES,
    ),
    default=False,
    notes=(
        "torch: the last fetch of an iterable dataset ends with StopIteration, and is marked as an error",
        "torch: optimizers that are not torch's own, and a torch.save that torch_npu replaces when it is imported "
        "later, need targets of your own",
    ),
)
