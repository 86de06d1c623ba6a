"""The names of the package, pinned: `tests/test_typing.py` has mypy check this file, nothing runs it.

An ignored error that is none is an error too (`--strict`): a name that does not exist must be refused.
"""

from __future__ import annotations

from typing import Callable

import polars as pl
from typing_extensions import assert_type

import mstxkit
from mstxkit import captrue  # type: ignore[attr-defined]  # noqa: F401
from mstxkit.reading.run import Run

value = mstxkit.typo  # type: ignore[attr-defined]
mstxkit.mstx_rnage("x")  # type: ignore[attr-defined]

assert_type(mstxkit.open_run("runs/exp7"), Run)
assert_type(mstxkit.open_run("runs/exp7", ranks=1, stages="reward").verdicts(), pl.DataFrame)
assert_type(mstxkit.open_run("runs/exp7").lateness(), pl.DataFrame)
mstxkit.open_run("runs/exp7").verdicts(rank=1)  # type: ignore[call-arg]
assert_type(mstxkit.__version__, str)
unpatch: Callable[..., None] = mstxkit.unpatch
assert_type(mstxkit.metrics(), dict[str, float])
