"""How a statement is timed here, so that a ratio repeats to a few per cent on a machine that does other work too.

Thread CPU time, not wall time (wall time measures the neighbours). Rounds are interleaved: each times every case
once, in a new random order, the empty loop and the reference among them. A ratio is formed inside a round, net of that
round's empty loop, and the median over the rounds is reported. The garbage collector stays on, as users leave it; a
collection precedes each batch, outside the timed part.
"""

from __future__ import annotations

import gc
import importlib.util
import itertools
import random
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Mapping, NamedTuple

HERE = Path(__file__).parent
REFERENCE = "reference"
# Environment of a variant: the engine and the clock that it asks for.
NATIVE, TWIN = {"MSTXKIT_NATIVE": "1"}, {"MSTXKIT_NATIVE": "0"}
MONOTONIC, TSC = {"MSTXKIT_CLOCK": "monotonic"}, {"MSTXKIT_CLOCK": "tsc"}
_EMPTY = "empty loop"


class Row(NamedTuple):
    """One measured figure. `key` is what budgets.toml calls it; `spread` the interquartile range, in `unit`."""

    key: str
    value: float
    unit: str
    spread: float = 0.0
    note: str = ""


@dataclass
class Case:
    """One statement, compiled into a loop of its own.

    `before` and `after` run around each batch, outside the timed part; `per` is how many ranges one statement holds.
    """

    name: str
    loop: Callable[[Any], None]
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None
    per: int = 1
    at_most: int = 400_000
    count: int = 0
    done: int = 0
    raw: list[float] = field(default_factory=list)

    def time_batch(self) -> float:
        """ns of thread CPU time per statement, loop included."""
        if self.before:
            self.before()
        gc.collect()
        ticks = itertools.repeat(None, self.count)
        began = time.thread_time_ns()
        self.loop(ticks)
        taken = time.thread_time_ns() - began
        self.done += self.count
        if self.after:
            self.after()
        return taken / self.count


class Rounds:
    """Cases timed side by side, with the empty loop and the reference among them."""

    def __init__(self, rounds: int = 41, batch_ms: float = 3.0, seed: int = 1) -> None:
        self.rounds, self.batch_ns, self._random = rounds, batch_ms * 1e6, random.Random(seed)
        self.cases: dict[str, Case] = {}
        self.add(_EMPTY, "pass")
        self.add(REFERENCE, "with o: pass", {"o": reference()()})

    def add(self, name: str, statement: str, names: Mapping[str, Any] | None = None, **options: Any) -> Case:
        """One more case; `names` are the statement's globals. Options: before, after, per, at_most."""
        case = Case(name, compile_loop(statement, names or {}), **options)
        self.cases[name] = case
        return case

    def run(self) -> Rounds:
        """Time all cases."""
        gc.collect()
        gc.freeze()  # modules and set-up objects out of the way: the collection before each batch stays cheap
        for case in self.cases.values():
            self._choose_count(case)
        for _ in range(self.rounds):
            for case in self._random.sample(list(self.cases.values()), len(self.cases)):
                case.raw.append(case.time_batch())
        return self

    def _choose_count(self, case: Case) -> None:
        case.count = min(500, case.at_most)
        fastest = min(case.time_batch() for _ in range(3))
        case.count = int(max(100, min(case.at_most, self.batch_ns / max(fastest, 1.0))))

    def net(self, name: str, over: str = _EMPTY) -> list[float]:
        """ns per range in each round, beyond those of the case `over`."""
        case, base = self.cases[name], self.cases[over]
        return [(a - b) / case.per for a, b in zip(case.raw, base.raw)]

    def ratios(self, name: str, over: str = _EMPTY, unit: str = REFERENCE) -> list[float]:
        """`net`, in units of another case, round by round."""
        return [a / b for a, b in zip(self.net(name, over), self.net(unit))]

    def row(self, key: str, name: str, over: str = _EMPTY, unit: str = REFERENCE) -> Row:
        """The figure of one case as a ratio, with its ns as a note."""
        ratios = self.ratios(name, over, unit)
        symbol = "x" if unit == REFERENCE else f"x {unit}"
        return Row(
            key, statistics.median(ratios), symbol, spread(ratios), f"{statistics.median(self.net(name, over)):.1f} ns"
        )


def spread(values: list[float]) -> float:
    """The interquartile range."""
    low, _, high = statistics.quantiles(values, n=4)
    return high - low


def compile_loop(statement: str, names: Mapping[str, Any]) -> Callable[[Any], None]:
    """`def inner(it): for _ in it: <statement>`, with `names` as its globals."""
    body = "\n        ".join(statement.splitlines())
    scope = dict(names)
    exec(f"def inner(it):\n    for _ in it:\n        {body}\n", scope)
    inner: Callable[[Any], None] = scope["inner"]
    return inner


def reference() -> Callable[[], object]:
    """The type of the reference object, built by gcc for this interpreter."""
    module = build_extension("reference")
    made: Callable[[], object] = module.Nothing
    return made


def build_extension(name: str) -> ModuleType:
    """Compile `benchmarks/<name>.c` as an extension of this interpreter and load it."""
    include = sysconfig.get_paths()["include"]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / (name + sysconfig.get_config_var("EXT_SUFFIX"))
        compile_shared(HERE / f"{name}.c", target, f"-I{include}")
        spec = importlib.util.spec_from_file_location(name, target)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


def compile_shared(source: Path, target: Path, *options: str) -> None:
    """gcc -O2 -shared."""
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", *options, str(source), "-o", str(target)], check=True)
