"""Inside verl's training stages: mini-batches, micro-batches, optimizer steps and offloading.

All of it inherits the role of the stage around it. Micro-batches are limited to 100 records a second.

Pieces, as a sample counts them. A micro-batch goes from the entry of its forward pass to that of the next one's, and so
has its backward pass; the last one ends where the optimizer's step begins, or the loop ends. A mini-batch is all of
them and the optimizer's step. Where nothing is trained, one pass over everything is one mini-batch. No version has
dummy batches here: a rank without data of its own still trains.
"""

from __future__ import annotations

from functools import partial

from ..patching.declare import CONTEXT, EXTRA, Target, method
from ..pieces.kinds import PieceSampling
from ._megatron import CORE, sample_interleaved

ENGINE = "verl.workers.engine"
MICRO_BATCHES_PER_S = 100
ONLY = {"forward_only": "forward_only"}

# A batch of an engine goes on until the next, or the end of what it is in: the optimizer's step comes after it.
GOES_ON = PieceSampling(until_next=True, ends_after=("micro_batch",))
ENDS_MINI = PieceSampling(ends_after=("mini_batch",))

_target_piece = partial(method, role="stage")
_mini_batch = partial(_target_piece, boundary="mini_batch", attributes=ONLY, sampling=GOES_ON)
_micro_batch = partial(
    _target_piece, boundary="micro_batch", max_per_s=MICRO_BATCHES_PER_S, sampling=PieceSampling(until_next=True)
)

# workers/actor/dp_actor.py 0.6.1:94,283,310,372 0.7.0:94,309,336,398 0.7.1:113,391,425,509;
# workers/critic/dp_critic.py 0.6.1 to 0.7.1:53,134,153,192; gone in 0.8.0. `_forward_micro_batch` is the forward pass;
# `_optimizer_step` ends each mini-batch: 0.7.1:556-672, `for mini_batch: for micro_batch: _forward_micro_batch, then
# backward(); _optimizer_step`. compute_log_prob and compute_values have the inner loop alone (0.7.1:475).
_WITHIN = PieceSampling(until_next=True, within="mini_batch")
_ENDS_BOTH = PieceSampling(ends_before=("micro_batch",), ends_after=("mini_batch",))
LEGACY_FSDP = tuple(
    target
    for model, verbs in (
        ("verl.workers.actor.dp_actor:DataParallelPPOActor", ("compute_log_prob", "update_policy")),
        ("verl.workers.critic.dp_critic:DataParallelPPOCritic", ("compute_values", "update_critic")),
    )
    for target in (
        *(_target_piece(f"{model}.{verb}", sampling=ENDS_MINI) for verb in verbs),
        _micro_batch(f"{model}._forward_micro_batch", sampling=_WITHIN),
        _target_piece(f"{model}._optimizer_step", sampling=_ENDS_BOTH),
    )
)

# workers/actor/megatron_actor.py 0.6.1:168,338,655 0.7.0:181,376,734 0.7.1:202,397,765;
# workers/critic/megatron_critic.py 0.6.1:89,154,296 0.7.0:89,159,301 0.7.1:89,159,305; gone in 0.8.0. Megatron's own
# schedule runs the micro-batches (`_megatron.py`); update_policy and update_critic take the optimizer's step after each
# `forward_backward_batch`, so that a mini-batch goes on until the next, or the end of the loop.
LEGACY_MEGATRON = tuple(
    target
    for model, verbs in (
        ("verl.workers.actor.megatron_actor:MegatronPPOActor", ("compute_log_prob", "update_policy")),
        ("verl.workers.critic.megatron_critic:MegatronPPOCritic", ("compute_values", "update_critic")),
    )
    for target in (
        *(_target_piece(f"{model}.{verb}", sampling=ENDS_MINI) for verb in verbs),
        _mini_batch(f"{model}.forward_backward_batch"),
    )
)

# `forward_backward_batch` and `optimizer_step` of the engine, `forward_step` of its language model.
# workers/engine/fsdp/transformer_impl.py 0.6.1:475,516,939 0.7.0:487,528,942 0.7.1:570,611,1102 0.8.0:617,665,1253
# 0.9.0:700,759,1507 0.9.1:724,788,1549; veomni and fsdp_turbo derive from it.
# workers/engine/megatron/transformer_impl.py 0.6.1:387,275,571 0.7.0:469,356,607 0.7.1:530,410,729 0.8.0:604,478,814
# 0.9.0:825,680,1225 0.9.1:834,689,1243; mindspeed, the engine on NPUs, derives from it.
# workers/engine/torchtitan/transformer_impl.py 0.7.1:316,383,714 0.8.0:313,379,710 0.9.0:337,404,741 0.9.1:360,429,858
# workers/engine/automodel/transformer_impl.py 0.8.0:224,270,682 0.9.0:224,270,689 0.9.1:223,269,687
# Megatron runs `forward_step` in its schedule: one micro-batch after the other, unless it trains on a pipeline.
_PIPELINED = sample_interleaved("self.engine_config.pipeline_model_parallel_size > 1", until_next=True)
BATCHES = tuple(
    target
    for engine, sampling in (
        (f"{ENGINE}.fsdp.transformer_impl:FSDPEngine", GOES_ON),
        (f"{ENGINE}.megatron.transformer_impl:MegatronEngine", _PIPELINED),
        (f"{ENGINE}.torchtitan.transformer_impl:TorchTitanEngine", GOES_ON),
        (f"{ENGINE}.automodel.transformer_impl:AutomodelEngine", GOES_ON),
    )
    for target in (
        _mini_batch(f"{engine}.forward_backward_batch", sampling=sampling),
        _target_piece(f"{engine}.optimizer_step"),
        _micro_batch(f"{engine}WithLMHead.forward_step"),
        _target_piece(f"{engine}.to", attributes={"device": "device", "model": "model", "optimizer": "optimizer"}),
    )
)

# workers/engine/fsdp/transformer_impl.py 0.7.1:802 0.8.0:873 0.9.0:1066 0.9.1:1094; megatron's 0.7.1:659 0.8.0:751
# 0.9.0:1109 0.9.1:1127. With LoRA the reference is the actor without its adapter, as infer_batch alone runs it.
ADAPTERS = tuple(
    Target(
        f"{ENGINE}.{engine}.disable_adapter", kind=CONTEXT, name="ref_compute_log_prob",
        stage="reference_compute_log_prob", role="reference",
    )
    for engine in ("fsdp.transformer_impl:FSDPEngine", "megatron.transformer_impl:MegatronEngine")
)  # fmt: skip

# What the derived engines have of their own.
DERIVED = (
    # workers/engine/megatron/transformer_impl.py 0.6.1:666 0.7.0:698 0.7.1:882 0.8.0:1022 0.9.0:1490 0.9.1:1507
    _micro_batch(f"{ENGINE}.megatron.transformer_impl:MegatronEngineWithValueHead.forward_step"),
    # workers/engine/veomni/transformer_impl.py 0.7.0:213,193 0.7.1:261,241 0.8.0:407,387 0.9.0:385,365 0.9.1:405,385
    _mini_batch(f"{ENGINE}.veomni.transformer_impl:VeOmniEngine.forward_backward_batch"),
    _target_piece(f"{ENGINE}.veomni.transformer_impl:VeOmniEngine.optimizer_step"),
    # workers/engine/fsdp/fsdp_turbo_impl.py 0.9.1:105
    _target_piece(f"{ENGINE}.fsdp.fsdp_turbo_impl:FSDPTurboEngineWithLMHead.optimizer_step"),
    # workers/engine/fsdp/transformer_impl.py, workers/engine/megatron/transformer_impl.py, all versions
    _target_piece(f"{ENGINE}.fsdp.transformer_impl:FSDPEngine.optimizer_zero_grad", tier=EXTRA),
    _target_piece(f"{ENGINE}.megatron.transformer_impl:MegatronEngine.optimizer_zero_grad", tier=EXTRA),
)

ENGINES = (*LEGACY_FSDP, *LEGACY_MEGATRON, *BATCHES, *ADAPTERS, *DERIVED, *CORE)
