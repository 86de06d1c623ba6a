"""What `import mstxkit` costs: modules more than bare Python (which, unlike milliseconds, repeats), and CPU time."""

from __future__ import annotations

import statistics
import subprocess
import sys

from .harness import HERE, Row

VARIANTS: dict[str, dict[str, str]] = {"default": {}}
RUNS = 15
HEAVY = {"torch", "torch_npu", "numpy", "polars", "pydantic", "wrapt", "ray", "asyncio", "typer", "rich"}
CODE = """
import sys, time
sys.path.insert(0, {root!r})
began = time.process_time_ns()
{statement}
print(time.process_time_ns() - began, *sys.modules)
"""


def measure(variant: str) -> list[Row]:
    """Counts in fresh, isolated processes."""
    bare = _run("pass")[1]
    runs = [_run("from mstxkit import mstx_range, mstx_timer") for _ in range(RUNS)]
    more = sorted(runs[0][1] - bare)
    heavy = {name.split(".")[0] for name in more} & HEAVY
    assert not heavy, f"import mstxkit loads {heavy}"
    return [
        Row("import.modules", len(more), "modules", note=" ".join(more)),
        Row("import.cpu_ms", statistics.median(ns for ns, _ in runs) / 1e6, "ms"),
    ]


def _run(statement: str) -> tuple[int, set[str]]:
    code = CODE.format(root=str(HERE.parent), statement=statement)
    words = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    return int(words[0]), set(words[1:])
