"""What lets trl's GRPO train on a CPU with vLLM as its server: weights go over gloo, as NCCL needs an accelerator.

Both sides of the transfer are replaced: trl's client refuses a CPU there ("needs a CUDA device"), and vLLM's
communicator without NCCL sends nothing and says nothing. AsyncGRPO has another client, and FlashAttention 3, which has
no kernel for a CPU: torch's own attention takes its place. No function is replaced that mstxkit patches.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

_WITHIN = timedelta(seconds=300)


def _group(port: int, rank: int, world_size: int) -> Any:
    store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False, timeout=_WITHIN)
    return dist.ProcessGroupGloo(store, rank, world_size, _WITHIN)


def _broadcast(group: Any, weight: torch.Tensor) -> None:
    group.broadcast([weight], dist.BroadcastOptions()).wait()


def register() -> None:
    """In each process of vLLM, by the entry point `vllm.general_plugins`: the engine that receives weights."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    WeightTransferEngineFactory._registry["nccl"] = _engine


def _engine() -> Any:
    from vllm.distributed.weight_transfer import nccl_engine

    class Engine(nccl_engine.NCCLWeightTransferEngine):  # type: ignore[misc]
        def init_transfer_engine(self, init_info: Any) -> None:
            self.model_update_group = _group(init_info.master_port, init_info.rank_offset, init_info.world_size)

        def receive_weights(self, update_info: Any) -> None:
            for name, kind, shape in zip(update_info.names, update_info.dtype_names, update_info.shapes):
                weight = torch.empty(shape, dtype=getattr(torch, kind))
                _broadcast(self.model_update_group, weight)
                self.model.load_weights([(name, weight)])

        def shutdown(self) -> None:
            self.model_update_group = None

    return Engine


def send_over_gloo() -> None:
    """In the trainer."""
    from trl.generation import vllm_client

    vllm_client.VLLMClient.init_communicator = _init_communicator
    vllm_client.VLLMClient.close_communicator = lambda self: None
    vllm_client.packed_nccl_broadcast_producer = _send


def _init_communicator(self: Any, device: Any = None) -> None:
    world_size = self.get_world_size() + 1
    where = {"master_address": "127.0.0.1", "master_port": self.group_port, "world_size": world_size}
    init_info = {**where, "rank_offset": 1, "packed": True}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(self._post, f"{self.base_url}/init_weight_transfer_engine", json={"init_info": init_info})
        self.communicator = _group(self.group_port, 0, world_size)
        asked.result()


def _send(iterator: Any, group: Any, src: int, post_iter_func: Any) -> None:
    for named in iterator:
        _broadcast(group, post_iter_func(named).detach().cpu().contiguous())


def train_async_on_cpu() -> None:
    """In the trainer of AsyncGRPO: its end of the transfer, its attention, and no question about CUDA's speed."""
    from trl.experimental.async_grpo import async_grpo_trainer, packing, weight_transfer

    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None
    weight_transfer.open_trainer_endpoint = _open
    weight_transfer.packed_nccl_broadcast_producer = _send_named
    packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=_attend)


def _open(init_info: dict[str, Any]) -> Any:
    """trl reaches into what is in `group` when it ends."""
    return SimpleNamespace(group=SimpleNamespace(gloo=_group(init_info["master_port"], 0, init_info["world_size"])))


def _send_named(iterator: Any, group: Any, src: int, post_iter_func: Any) -> None:
    _send(iterator, group.group.gloo, src, post_iter_func)


def _attend(
    query: Any, key: Any, value: Any, ends_q: Any, ends_k: Any, *_: Any, softmax_scale: float, **__: Any
) -> torch.Tensor:
    """Each piece of the queries looks at its own keys: at the last of them with its last query, and so on before."""
    pieces = []
    for first_q, last_q, first_k, last_k in zip(ends_q, ends_q[1:], ends_k, ends_k[1:]):
        q, k, v = query[first_q:last_q], key[first_k:last_k], value[first_k:last_k]
        seen = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
        heads = (part.transpose(0, 1) for part in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(
            *heads, attn_mask=seen, scale=softmax_scale, enable_gqa=True
        )
        pieces.append(out.transpose(0, 1))
    return torch.cat(pieces)
