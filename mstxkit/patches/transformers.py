"""Ranges for `transformers.Trainer`, whoever derives from it: each update, its micro-batches, optimizer, checkpoints.

Source: transformers 4.57.6 and 5.10.4, `trainer.py`, whose line numbers are those of 5.10.4; accelerate 1.15.0.

Steps: `state.global_step`, the finished updates, from 0, resume-aware. No function spans an update. It begins with the
fetch of its batches, and is the stage `train_step` from its first micro-batch to the end of the optimizer.
"""

from ..patching.declare import AROUND, WRAP, Patch, Target
from ..pieces.kinds import PieceSampling

_TRAINER, _CALLS = "transformers.trainer:Trainer", "mstxkit.patches._trainer_calls"
_UPDATE, _STEP = "mstxkit.patches._trl_update", "trainer.state.global_step"

# Lines 1331, 2106, 1876, 2536, 3060: each method asks `_trainer_calls`, whose function is the range.
_ASKING = tuple(
    Target(f"{_TRAINER}.{method}", kind=WRAP, value=f"{_CALLS}:{method.lstrip('_')}")
    for method in ("train", "get_batch_samples", "training_step", "evaluate", "_save_checkpoint")
)
_PARTS = (
    Target(f"{_CALLS}:run_whole", name="Trainer.train", process_role="trainer", with_module="transformers.trainer"),
    Target(
        f"{_CALLS}:fetch_batches", name="Trainer.get_batch_samples", step=_STEP, sampling=PieceSampling(ends_round=True)
    ),
    Target(
        f"{_CALLS}:run_micro_batch", name="Trainer.training_step", stage="train_step", step=_STEP,
        boundary="micro_batch", sampling=PieceSampling(is_round=True),
    ),
    Target(f"{_CALLS}:run_evaluation", name="Trainer.evaluate", stage="evaluate"),
    Target(f"{_CALLS}:save_state", name="Trainer._save_checkpoint", stage="save_checkpoint"),
)  # fmt: skip


def rest_of_update(with_module: str) -> tuple[Target, ...]:
    """What accelerate does of it, in `_run_epoch` (line 1662): it knows no trainer, and the patch of trl has it, too.

    Source: accelerate 1.15.0, accelerator.py:2829, 2989, optimizer.py:152.
    """
    clips, steps = (PieceSampling(ends_before=("micro_batch",), ends_round_after=ends) for ends in (False, True))
    return tuple(
        Target(f"accelerate.{path}", kind=AROUND, value=f"{_UPDATE}:{part}", with_module=with_module, sampling=role)
        for path, part, role in (
            ("accelerator:Accelerator.backward", "backward", PieceSampling()),
            ("accelerator:Accelerator.clip_grad_norm_", "clip_grad_norm", clips),
            ("optimizer:AcceleratedOptimizer.step", "optimizer_step", steps),
        )
    )


PATCH = Patch(
    framework="transformers",
    versions="4.57.6 to 5.10.4",
    targets=(*_ASKING, *_PARTS, *rest_of_update("transformers.trainer")),
    default=False,
    notes=(
        "transformers: for ms-swift, LLaMA-Factory and other loops that are a Trainer; what trl's patch has of a "
        "trainer is not had twice",
    ),
)
