"""Runs the tests part by part and prints one table: `suite.py test`, `suite.py soak`, `suite.py test-all`.

Standard library only. `test` runs everything on this Python, what is random or long in a short form; `soak` runs those
in full; `test-all` the core tests on every Python found. A part that ran no test counts as failed, so that a wrong
marker or a missing package never looks like success. Options for pytest go through PYTEST_ADDOPTS.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple, Sequence

import environments

ROOT = Path(__file__).resolve().parents[1]
CORE = "not npu and not wheel and not slow and not ray and not frameworks and not mindspore and not nomem"
NPU = "npu and not wheel"
SLOW = "slow and not npu and not ray and not frameworks and not mindspore"
ENGINES = {"1": "C engine", "0": "Python twin"}
# What does not depend on the engine is tested with C alone: docs/internals/testing.md.
CORE_BY_ENGINE = {"1": CORE, "0": f"twin and {CORE}"}
# Title, environment, tests. What needs verl, trl or torch runs once, beside the current Ray.
OF_RAY = (
    ("Ray 2.60", "frameworks", "ray and not frameworks"),
    ("Ray 2.42.1", "ray-2.42.1", "ray and not frameworks"),
)
# A Ray that somebody runs here; and what makes thousands of processes compile the package anew.
NOT_FOR_TESTS = ("RAY_ADDRESS", "PYTHONDONTWRITEBYTECODE")
# A file stays on one worker: what its tests share is made once.
# What is marked as slow, or may take long, begins first (tests/conftest.py): else one worker waits for it at the end.
# Tests of the core that run where other lanes are through before the core is: first what waits more than it computes.
OF_PROCESSES = ("tests/incidents", "tests/processes")
OF_JOBS = ("tests/cluster", "tests/telemetry", "tests/contracts", "tests/config")
# Where what is slow trains real ranks and judges them: a busy machine makes everybody slow.
OF_DEMO = ("tests/demo", "tests/cluster")
SIDE_BY_SIDE = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
ALONE: tuple[str, ...] = ()
# Of the time that Ray's tests take, two thirds are its own waits.
RAY_ALONE = tuple((*part, ALONE) for part in OF_RAY)
# Half of what the first takes is verl's own training, whose processes wait for each other.
OF_FRAMEWORKS = (
    ("frameworks", "frameworks", "frameworks", SIDE_BY_SIDE),
    ("MindSpore 2.10", "mindspore", "mindspore", ALONE),
)
OfFramework = tuple[str, str, str, tuple[str, ...]]  # as the lines above: title, environment, tests, options
_MAKING = threading.Lock()


class Part(NamedTuple):
    """One run of pytest: which tests, on which Python, on which engine ("1" C, "0" twin, "" as it comes)."""

    title: str
    python: Path
    markers: str
    native: str = ""
    options: tuple[str, ...] = SIDE_BY_SIDE


class Outcome(NamedTuple):
    """What a part came to."""

    title: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    status: int
    note: str = ""

    @property
    def is_good(self) -> bool:
        """Did tests run, and all of them pass?"""
        return self.status == 0 and self.passed > 0 and self.failed == 0


def main(arguments: list[str]) -> int:
    """Run what is asked for; 0 when every part is good."""
    os.chdir(ROOT)
    runs = {"test": test_here, "soak": soak_here, "test-all": test_everywhere}
    if len(arguments) != 1 or arguments[0] not in runs:
        sys.exit(f"usage: suite.py {' | '.join(runs)}")
    os.environ["SEED_OF_TESTS"] = os.environ.get("MSTXKIT_TEST_SEED") or date.today().strftime("%Y%m%d")
    began = time.monotonic()
    outcomes = runs[arguments[0]]()
    print_table(outcomes, time.monotonic() - began)
    return 0 if all(outcome.is_good or outcome.note for outcome in outcomes) else 1


def test_here() -> list[Outcome]:
    """All parts on the Python that runs this script."""
    packaging = Part("packaging", Path(sys.executable), "wheel", options=ALONE)
    parts = waiting("processes", OF_PROCESSES), waiting("jobs", OF_JOBS), packaging
    rest = (*SIDE_BY_SIDE, *(f"--ignore={folder}" for folder in (*OF_PROCESSES, *OF_JOBS)))
    return in_lanes("", RAY_ALONE, parts, rest)


def waiting(of: str, folders: tuple[str, ...]) -> Part:
    """Some folders of the core."""
    return Part(f"core on the C engine: {of}", Path(sys.executable), CORE, "1", (*SIDE_BY_SIDE, *folders))


def soak_here() -> list[Outcome]:
    """The modules that have a longer form, in that form; and of the older Ray all (tests/ray_jobs/conftest.py)."""
    os.environ["SOAK_TESTS"] = "1"
    (title, name, markers, options), older = RAY_ALONE
    return in_lanes(" and soak", ((title, name, f"{markers} and soak", options), older), (), SIDE_BY_SIDE)


def in_lanes(of: str, of_ray: Sequence[OfFramework], more: Sequence[Part], of_core: tuple[str, ...]) -> list[Outcome]:
    """All parts, or what `of` leaves of them, in three lanes: four to six workers keep two cores busy, as many tests
    wait for children, imports and trainings. The core stands in the first; each of the two others takes the next part,
    long ones first, and shows what pytest says of it when it is through.
    """
    frameworks, mindspore = [(title, name, markers + of, options) for title, name, markers, options in OF_FRAMEWORKS]
    others = part_of_slow("slow (others)", of, (*SIDE_BY_SIDE, *(f"--ignore={folder}" for folder in OF_DEMO)))
    with ThreadPoolExecutor(max_workers=2) as lanes:
        beside = [
            *(lanes.submit(in_environment, *part, PIPE) for part in (of_ray[0], frameworks)),
            *(lanes.submit(run, part, PIPE) for part in more),
            lanes.submit(on_engine, "0", of, SIDE_BY_SIDE, PIPE),
            lanes.submit(on_npu, NPU + of, ALONE, PIPE),
            *(lanes.submit(in_environment, *part, PIPE) for part in (mindspore, *of_ray[1:])),
            lanes.submit(run, others, PIPE),
        ]
        core = on_engine("1", of, of_core)
        demo = run(part_of_slow("slow (demo)", of, (*ALONE, *OF_DEMO)))
        return [core, demo, *(outcome.result() for outcome in beside)]


def part_of_slow(title: str, of: str, options: tuple[str, ...]) -> Part:
    """Some of what is marked as slow."""
    return Part(title, Path(sys.executable), SLOW + of, options=options)


def on_engine(native: str, of: str, options: tuple[str, ...], output: int | None = None) -> Outcome:
    """The core tests, or some of them, on one engine."""
    part = Part(f"core on the {ENGINES[native]}", Path(sys.executable), CORE_BY_ENGINE[native] + of, native, options)
    return run(part, output)


def on_npu(markers: str, options: tuple[str, ...], output: int | None = None) -> Outcome:
    """Tests with the real torch_npu, where it is."""
    part = Part("real torch_npu on stand-in CANN", Path(sys.executable), markers, options=options)
    if find_spec("torch_npu"):
        return run(part, output)
    return Outcome(part.title, 0, 0, 0, 0.0, 0, "torch_npu is not installed here: left out")


def in_environment(title: str, name: str, markers: str, options: tuple[str, ...], output: int | None = None) -> Outcome:
    """One part in an environment of real frameworks, which is made first."""
    try:
        with _MAKING:  # two lanes may want the same one
            python = environments.make(name)
        return run(Part(title, python, markers, options=options), output)
    except environments.Unavailable as reason:
        return Outcome(title, 0, 0, 0, 0.0, 0, str(reason))
    except subprocess.CalledProcessError as error:
        return Outcome(f"{title} set-up", 0, 0, 0, 0.0, error.returncode)


def test_everywhere() -> list[Outcome]:
    """The core tests on every Python found, on both engines, each in an environment of its own without torch.

    Two Pythons at a time; what pytest says of one part is shown when that part is through.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        return [outcome for outcomes in pool.map(test_version, environments.POLARS) for outcome in outcomes]


def test_version(version: str) -> list[Outcome]:
    """The core tests on one Python, on both engines."""
    try:
        python = environments.make(version)
    except environments.Unavailable as reason:
        return [Outcome(version, 0, 0, 0, 0.0, 0, str(reason))]
    except subprocess.CalledProcessError as error:
        return [Outcome(f"{version} set-up", 0, 0, 0, 0.0, error.returncode)]
    polars = version_of(python, "polars")
    return [
        run(Part(f"{version}, {engine}, polars {polars}", python, CORE_BY_ENGINE[native], native, ()), PIPE)
        for native, engine in ENGINES.items()
    ]


def version_of(python: Path, package: str) -> str:
    """The installed version of a package, as that Python sees it."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


def run(part: Part, output: int | None = None) -> Outcome:
    """Run pytest for one part and count from its JUnit file; with `output` PIPE its output is shown at the end."""
    if output is None:
        print(f"\n=== {part.title} ===", flush=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith("MSTXKIT_") and k not in NOT_FOR_TESTS}
    if part.native:
        env["MSTXKIT_NATIVE"] = part.native
    folder = Path(tempfile.mkdtemp())
    # A Ray of this part's own: it would join one that somebody else has started on this machine.
    env["RAY_TMPDIR"] = str(folder)
    # Two cores for four or five workers and what they start: threads of OpenMP would wait for each other, busily.
    env.setdefault("OMP_NUM_THREADS", "1")
    report = folder / "junit.xml"
    command = [part.python, "-m", "pytest", "-q", *part.options, "-m", part.markers, f"--junitxml={report}"]
    began = time.monotonic()
    ended = subprocess.run(command, env=env, stdout=output, text=True)
    seconds = time.monotonic() - began
    if output is not None:
        print(f"\n=== {part.title} ===\n{ended.stdout}", flush=True)
    counts = count(report)
    shutil.rmtree(folder, ignore_errors=True)
    return Outcome(part.title, *counts, seconds, ended.returncode)


def count(report: Path) -> tuple[int, int, int]:
    """(passed, failed, skipped) of a JUnit file; nothing ran where there is none."""
    if not report.exists():
        return 0, 0, 0
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return total - failed - skipped, failed, skipped


def print_table(outcomes: list[Outcome], seconds: float) -> None:
    """One line per part and the sum."""
    width = max(len(outcome.title) for outcome in outcomes)
    print(f"\n{'':{width}}  passed  failed  skipped  seconds")
    for one in outcomes:
        verdict = one.note or ("" if one.is_good else "NOTHING RAN" if not one.passed + one.failed else "FAILED")
        print(f"{one.title:{width}}  {one.passed:6}  {one.failed:6}  {one.skipped:7}  {one.seconds:7.0f}  {verdict}")
    passed, failed, skipped = (sum(getattr(o, what) for o in outcomes) for what in ("passed", "failed", "skipped"))
    print(f"{'all':{width}}  {passed:6}  {failed:6}  {skipped:7}  {seconds:7.0f}")
    print(f"MSTXKIT_TEST_SEED={os.environ['SEED_OF_TESTS']} repeats what was random")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
