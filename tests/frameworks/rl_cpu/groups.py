"""vLLM's groups of processes, as far as MindSpeed-RL makes and asks them, over torch's."""

from __future__ import annotations

import functools
import os
from typing import Any, Sequence

import torch.distributed as dist

_TP: Any = None
_PP: Any = None
_EP: Any = None
_DP: Any = None


class Group:
    """One of those into which all ranks are divided: that of this rank."""

    def __init__(self, divided: Sequence[Sequence[int]]) -> None:
        for ranks in divided:
            made = dist.new_group(ranks=list(ranks))
            if dist.get_rank() in ranks:
                self.device_group, self.ranks = made, list(ranks)
        self.world_size, self.first_rank = len(self.ranks), self.ranks[0]
        self.rank_in_group = self.ranks.index(dist.get_rank())
        self.is_last_rank = self.rank_in_group == self.world_size - 1
        self.local_rank = int(os.environ["LOCAL_RANK"])


def init_distributed_environment(*_: Any, **__: Any) -> None:
    """Megatron has done it."""


def init_model_parallel_group(group_ranks: Sequence[Sequence[int]], *_: Any, **__: Any) -> Group:
    return Group(group_ranks)


@functools.cache
def get_world_group() -> Group:
    return Group([range(dist.get_world_size())])


def get_ep_group() -> Group:
    return _EP  # type: ignore[no-any-return]


def get_tensor_model_parallel_group() -> Group:
    return _TP  # type: ignore[no-any-return]


def get_pipeline_model_parallel_group() -> Group:
    return _PP  # type: ignore[no-any-return]


def get_tensor_model_parallel_rank() -> int:
    return _TP.rank_in_group  # type: ignore[no-any-return]


def get_tensor_model_parallel_world_size() -> int:
    return _TP.world_size  # type: ignore[no-any-return]


get_tp_group, get_pp_group = get_tensor_model_parallel_group, get_pipeline_model_parallel_group
