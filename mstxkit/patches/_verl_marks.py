"""What verl's own mstx marks become: left out where the same thing has a range of mstxkit, given as before elsewhere.

Source: verl 0.6.1 to 0.9.1, utils/profiler/mstx_profile.py: `mark_start_range` and `mark_end_range` call
`torch_npu.npu.mstx`, and are called only while verl's NPUProfiler records, and by `marked_timer`.
"""

from __future__ import annotations

from typing import Any

from .. import stages
from ..engine.choose import engine
from ..marking import ranges

# Patched functions that verl marks and that are no stage, by the names that `DistProfiler.annotate` gives them. Their
# ranges are outside of the mark whenever there are ranges at all.
_NOT_STAGES = ("train_batch", "forward_backward")


def start_mark(message: str | None = None) -> Any:
    """verl's `mark_start_range`: the id of the mark, or None where a range says the same already.

    What decides is the stage that encloses the call, under any of its names: 0.6.1 to 0.9.0 mark with the name of the
    function, 0.9.1 with the role, the trainer with the name of the metric. While neither a recorder nor a profiler
    listens there are no stages, and every mark is given.
    """
    is_stage = message not in _NOT_STAGES
    if (stages.canonical_key(message or "") == ranges.current_stage()) if is_stage else engine.recording():
        return None
    from torch_npu.npu import mstx  # type: ignore[import-not-found,import-untyped,unused-ignore]

    return mstx.range_start(message=message)


def end_mark(range_id: Any) -> Any:
    """verl's `mark_end_range`, for what `start_mark` gave."""
    if range_id is None:
        return None
    from torch_npu.npu import mstx  # type: ignore[import-not-found,import-untyped,unused-ignore]

    return mstx.range_end(range_id)
