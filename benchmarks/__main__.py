"""Run every benchmark, print one table, write results/*.json; with --check, compare with budgets.toml.

A benchmark is a file `bench_<name>.py` with `VARIANTS` (name -> environment, or a function that makes it) and
`measure(variant) -> rows`. Every variant runs in a fresh process, or in as many as `PROCESSES` says, which is a number
or variant -> number (3 for others): where objects come to lie moves a ratio by some per cent, so the median over
processes is taken. Budgets hold on CPython 3.11; on other versions a breach is reported only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .harness import HERE, Row

RESULTS = HERE / "results"
BUDGETS_HOLD_ON = (3, 11)


def main() -> int:
    """Exit status: 0, or 1 on a breached budget (with --check) or a benchmark that could not run."""
    options = _parser().parse_args()
    if options.child:
        return _measure(*options.child)
    budgets = _budgets()
    failures = breaches = 0
    _line("", "measured", "", "budget", "spread", "")
    for name in _names(options.only):
        rows, failed = _run(name)
        failures += failed
        breaches += sum(_show(row, budgets) for row in rows)
        if rows:
            _save(name, rows)
    return _verdict(options.check, failures, breaches)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit 1 when a figure breaks its budget")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME[,NAME]",
        help="just these: range_off,timer, ...; reading: all reading_…",
    )
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    return parser


def _names(wanted: list[str] | None) -> list[str]:
    only = {name for names in wanted or () for name in names.split(",") if name}
    known = sorted(path.stem[len("bench_") :] for path in HERE.glob("bench_*.py"))
    groups = {name: [one for one in known if one.startswith(f"{name}_")] for name in only if name not in known}
    only = (only - {name for name, members in groups.items() if members}).union(*groups.values())
    unknown = only - set(known)
    if unknown:
        sys.exit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [name for name in known if not only or name in only]


def _measure(name: str, variant: str, out: str) -> int:
    rows = importlib.import_module(f"benchmarks.bench_{name}").measure(variant)
    Path(out).write_text(json.dumps(rows))
    return 0


def _run(name: str) -> tuple[list[Row], int]:
    """All variants of one benchmark: their rows, and how many of them failed."""
    module = importlib.import_module(f"benchmarks.bench_{name}")
    rows: list[Row] = []
    failed = 0
    for variant, environment in module.VARIANTS.items():
        settings = environment() if callable(environment) else environment
        processes = getattr(module, "PROCESSES", 1)
        times = processes.get(variant, 3) if isinstance(processes, dict) else processes
        found = _repeatedly(name, variant, settings, times)
        rows += _medians(found)
        failed += not found
    return rows, failed


def _repeatedly(name: str, variant: str, settings: dict[str, str], processes: int) -> list[list[Row]]:
    """What each process measured; nothing as soon as one fails."""
    found = []
    for _ in range(processes):
        rows = _in_fresh_process(name, variant, settings)
        if rows is None:
            return []
        found.append(rows)
    return found


def _medians(found: list[list[Row]]) -> list[Row]:
    """Row by row, the one whose value is in the middle, with the greatest spread of all."""
    middles = []
    for same in zip(*found):
        middle = sorted(same, key=lambda row: row.value)[len(same) // 2]
        between = max(row.value for row in same) - min(row.value for row in same)
        middles.append(middle._replace(spread=max([between, *(row.spread for row in same)])))
    return middles


def _in_fresh_process(name: str, variant: str, environment: dict[str, str]) -> list[Row] | None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("MSTXKIT_")}
    env.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    env.update(environment)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "benchmarks", "--child", name, variant, str(out)]
        done = subprocess.run(command, env=env, cwd=HERE.parent, capture_output=True, text=True)
        if done.returncode or not out.exists():
            print(f"{name}.{variant} FAILED (exit {done.returncode})\n{_tail(done.stderr)}", flush=True)
            return None
        return [Row(*fields) for fields in json.loads(out.read_text())]


def _tail(text: str, lines: int = 12) -> str:
    return "\n".join("    " + line for line in text.strip().splitlines()[-lines:])


def _budgets() -> dict[str, tuple[str, float]]:
    """Key -> ("<=" or ">=", limit)."""
    if sys.version_info < (3, 11):
        return {}
    import tomllib

    tables = tomllib.loads((HERE / "budgets.toml").read_text())
    sides = {"at_most": "<=", "at_least": ">="}
    return {key: (sides[side], float(limit)) for side, table in tables.items() for key, limit in table.items()}


def _show(row: Row, budgets: dict[str, tuple[str, float]]) -> bool:
    """Print one row; is its budget breached?"""
    side, limit = budgets.get(row.key, ("", 0.0))
    breached = bool(side) and (row.value > limit if side == "<=" else row.value < limit)
    budget = f"{side} {limit:,g}" if side else "-"
    _line(
        row.key, _number(row.value), row.unit, budget, _number(row.spread), ("BREACH  " if breached else "") + row.note
    )
    return breached


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _line(key: str, value: str, unit: str, budget: str, between: str, note: str) -> None:
    print(f"{key:44} {value:>12} {unit:14} {budget:>14} {between:>9}  {note}".rstrip(), flush=True)


def _save(name: str, rows: list[Row]) -> None:
    RESULTS.mkdir(exist_ok=True)
    content = {"machine": _machine(), "versions": _versions(), "commit": _commit(), "rows": [r._asdict() for r in rows]}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def _machine() -> dict[str, Any]:
    """What the figures depend on; no host name."""
    cpu = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return {"cpu": cpu, "cores": os.cpu_count(), "architecture": platform.machine()}


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for package in ("mstxkit", "torch", "torch_npu", "polars", "numpy", "zstandard", "nvtx", "opentelemetry-sdk"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "../mstxkit", "../benchmarks/*.py", "../benchmarks/*.c")
    return (git("rev-parse", "HEAD") or "unknown") + (" with changes" if changed else "")


def _verdict(check: bool, failures: int, breaches: int) -> int:
    holds = sys.version_info[:2] == BUDGETS_HOLD_ON
    if failures:
        print(f"{failures} benchmarks could not run")
    if breaches:
        where = "" if holds else " (reported only: budgets hold on CPython 3.11)"
        print(f"{breaches} budgets breached{where}")
    return int(bool(failures) or (check and holds and bool(breaches)))


if __name__ == "__main__":
    sys.exit(main())
