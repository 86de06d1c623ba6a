"""Ranges for MindSpore: each step of `Model.train`, its callbacks, updates, optimizers, data, evaluation, checkpoints.

Source: MindSpore 2.10.0, whose line numbers these are. What it compiles has ranges around it, and none inside.
"""

from ..patching.declare import EXTRA, WRAP, Patch, Target, each
from . import _mindspore_calls as calls
from .torch import name_class

# No function spans a step: it is the stage `train_step` from the callbacks at its begin to the end of those at its end,
# whatever network it calls. `train` and `fit` run `_train`. Source: train/model.py:1294, 1437, 1035, 1737, 1608;
# train/callback/_callback.py:411, 436, 441, 416, 426, 446.
_MODEL, _CALLBACKS = "mindspore.train.model:Model", "mindspore.train.callback._callback:CallbackManager"
_CALLS = "mstxkit.patches._mindspore_calls"
_LOOP = (
    *each(_MODEL, "train", "fit", process_role="trainer", attributes={"epochs": "epoch", "sinks": "dataset_sink_mode"}),
    Target(f"{_MODEL}._train", kind=WRAP, value=f"{_CALLS}:run_steps"),
    Target(f"{_CALLBACKS}.on_train_step_begin", kind=WRAP, value=f"{_CALLS}:begin_step", stage="train_step"),
    Target(f"{_CALLBACKS}.on_train_step_end", kind=WRAP, value=f"{_CALLS}:end_step"),
    *each(_CALLBACKS, "on_train_begin", "on_train_epoch_begin", "on_train_epoch_end", "on_train_end"),
    *each(_MODEL, "eval", "_eval_in_fit", stage="evaluate"),
)

# An update with its optimizer. `__call__` is inherited from `Cell`: `construct` is what is compiled, and no function is
# called there. In PyNative mode an optimizer is a call of its own. Source: nn/wrap/cell_wrapper.py:318,
# nn/cell.py:1393, nn/optim/optimizer.py, experimental/optim/optimizer.py:22, from which those of `mint` derive.
_UPDATE = (
    Target(
        "mindspore.nn.wrap.cell_wrapper:TrainOneStepCell.__call__", name="TrainOneStepCell", stage="train_step",
        step=calls.count_update,
    ),
    *(
        Target(f"mindspore.{where}.optim.optimizer:Optimizer.__call__", name="Optimizer", attributes=name_class)
        for where in ("nn", "experimental")
    ),
)  # fmt: skip

# `__next__` of an iterator ends an epoch by StopIteration; below it is what waits for data. `ModelCheckpoint` is asked
# after each step. Source: dataset/engine/iterators.py:422, 511; train/serialization.py:635, 1313;
# train/callback/_checkpoint.py:629.
_DATA, _SAVING = "mindspore.dataset.engine.iterators", "mindspore.train.serialization"
_FILES = (
    *each(_DATA, "DictIterator._get_next", "TupleIterator._get_next", stage="load_batch"),
    Target(f"{_SAVING}:save_checkpoint", stage="save_checkpoint", attributes={"to": "ckpt_file_name"}),
    Target(f"{_SAVING}:load_checkpoint"),
    Target("mindspore.train.callback._checkpoint:ModelCheckpoint._save_ckpt", tier=EXTRA),
)

PATCH = Patch(
    framework="mindspore",
    versions="2.10.0",
    targets=(*_LOOP, *_UPDATE, *_FILES),
    notes=(
        "mindspore: one call of a dataset sink runs many steps, and is train_step of the last of them",
        "mindspore: a loop of one's own has steps where it calls a TrainOneStepCell outside of all stages; another one "
        "needs marks",
    ),
)
