"""torch_npu's own `mstx.range_start` + `range_end` against a range of ours, in the real torch_npu on the stand-in CANN.

Their time is that of a pair of calls while a profiler session takes mstx, so that it reaches the stand-in library. Ours
is measured beside it: off; on, through torch_npu's C layer; on, through CANN's functions directly. Nothing is logged
and nothing recorded. `off_both` is ours off against theirs with no session running, which costs them less.
"""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path
from typing import Any

from .bench_direct_sink import addresses
from .harness import NATIVE, Rounds, Row

OWN = "own"
OURS = 'with mstx_range("x"): pass'


def _environment() -> dict[str, str]:
    from mstxkit.testing.stand_in import StandIn

    return {**NATIVE, **StandIn.build().environment(mstx="profiler")}


PROCESSES = 3
VARIANTS = {"native": _environment}


def measure(variant: str) -> list[Row]:
    """In units of torch_npu's own pair of calls."""
    import torch  # noqa: F401
    import torch_npu

    from mstxkit import sinks
    from mstxkit.engine.choose import engine

    off_both = _rounds()
    with tempfile.TemporaryDirectory() as folder:
        session = _session(torch_npu, Path(folder))
        assert sinks.describe_all()["torch_npu"].startswith("on"), sinks.describe_all()
        through_c_layer = _rounds()
        sinks.silence_all()
        off = _rounds()
        engine.set_direct(addresses(ctypes.CDLL("libms_tools_ext.so")))
        direct = _rounds()
        engine.clear_direct()
        session.stop()
    return [
        off.row("torch_npu.off", "ours", unit=OWN),
        through_c_layer.row("torch_npu.c_layer", "ours", unit=OWN),
        direct.row("torch_npu.direct", "ours", unit=OWN),
        off_both.row("torch_npu.off_both", "ours", unit=OWN),
        off_both.row("torch_npu.own_off", OWN),
        through_c_layer.row("torch_npu.own_on", OWN),
    ]


def _rounds() -> Rounds:
    from torch_npu.npu import mstx

    from mstxkit import mstx_range

    rounds = Rounds()
    rounds.add(OWN, 'end(start("x"))', {"start": mstx.range_start, "end": mstx.range_end})
    rounds.add("ours", OURS, {"mstx_range": mstx_range})
    return rounds.run()


def _session(torch_npu: Any, folder: Path) -> Any:
    """A running profiler session that takes mstx ranges and nothing else."""
    kit = torch_npu.profiler
    options = kit._ExperimentalConfig(profiler_level=kit.ProfilerLevel.Level_none, mstx=True)
    session = kit.profile(
        activities=[kit.ProfilerActivity.NPU],
        experimental_config=options,
        on_trace_ready=kit.tensorboard_trace_handler(str(folder), analyse_flag=False),
    )
    session.start()
    return session
