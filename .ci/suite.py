"""Runs the tests part by part and prints one table: `suite.py test` on this Python, `suite.py test-all` on all of them.

Standard library only. A part that ran no test counts as failed, so that a wrong marker or a missing package never
looks like success. pytest's own output stays visible; options for it go through PYTEST_ADDOPTS.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple

import environments

ROOT = Path(__file__).resolve().parents[1]
CORE = "not npu and not wheel and not slow and not ray and not frameworks and not mindspore"
# What never asks the engine, or loads both, runs with one of them.
CORE_BY_ENGINE = {"1": CORE, "0": f"{CORE} and not engineless"}
VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13")
# Both major versions of polars are covered; those that still support Python 3.9 are 1.x.
POLARS = {"3.9": "polars<2", "3.10": "polars>=2", "3.11": "polars<2", "3.12": "polars>=2", "3.13": "polars<2"}
# Title, environment, tests. What needs verl, trl or torch runs once, beside the current Ray.
WITH_FRAMEWORKS = (
    ("Ray 2.60", "frameworks", "ray and not frameworks"),
    ("frameworks", "frameworks", "frameworks"),
    ("MindSpore 2.10", "mindspore", "mindspore"),
    ("Ray 2.42.1", "ray-2.42.1", "ray and not frameworks"),
)


class Part(NamedTuple):
    """One run of pytest: which tests, on which Python, on which engine ("1" C, "0" twin, "" as it comes)."""

    title: str
    python: Path
    markers: str
    native: str


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
    if arguments == ["test"]:
        outcomes = test_here()
    elif arguments == ["test-all"]:
        outcomes = test_everywhere()
    else:
        sys.exit("usage: suite.py test | test-all")
    print_table(outcomes)
    return 0 if all(outcome.is_good or outcome.note for outcome in outcomes) else 1


def test_here() -> list[Outcome]:
    """All parts on the Python that runs this script."""
    python = Path(sys.executable)
    titles = {"1": "core on the C engine", "0": "core on the Python twin"}
    parts = [Part(title, python, CORE_BY_ENGINE[native], native) for native, title in titles.items()]
    npu = Part("real torch_npu on stand-in CANN", python, "npu and not wheel", "")
    late = [
        Part("slow (demo)", python, "slow and not npu and not ray and not frameworks and not mindspore", ""),
        Part("packaging", python, "wheel", ""),
    ]
    outcomes = [run(part) for part in parts]
    if find_spec("torch_npu"):
        outcomes.append(run(npu))
    else:
        outcomes.append(Outcome(npu.title, 0, 0, 0, 0.0, 0, "torch_npu is not installed here: left out"))
    outcomes += [run(part) for part in late]
    return outcomes + [test_with(*part) for part in WITH_FRAMEWORKS]


def test_with(title: str, name: str, markers: str) -> Outcome:
    """One part in an environment of real frameworks, which is made first."""
    try:
        return run(Part(title, environments.make(name), markers, ""))
    except environments.Unavailable as reason:
        return Outcome(title, 0, 0, 0, 0.0, 0, str(reason))
    except subprocess.CalledProcessError as error:
        return Outcome(f"{title} set-up", 0, 0, 0, 0.0, error.returncode)


def test_everywhere() -> list[Outcome]:
    """The core tests on every Python found, on both engines, each in an environment of its own without torch.

    Two Pythons at a time; what pytest says of one part is shown when that part is through.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        return [outcome for outcomes in pool.map(test_version, VERSIONS) for outcome in outcomes]


def test_version(version: str) -> list[Outcome]:
    """The core tests on one Python, on both engines."""
    found = subprocess.run([ROOT / ".ci/find-python", version], capture_output=True, text=True).stdout.strip()
    if not found:
        return [Outcome(f"{version}", 0, 0, 0, 0.0, 0, "not found on this machine: left out")]
    try:
        python = environment(version, found)
    except subprocess.CalledProcessError as error:
        return [Outcome(f"{version} set-up", 0, 0, 0, 0.0, error.returncode)]
    polars = version_of(python, "polars")
    engines = (("1", "C engine"), ("0", "Python twin"))
    return [
        run(Part(f"{version}, {engine}, polars {polars}", python, CORE_BY_ENGINE[native], native), PIPE)
        for native, engine in engines
    ]


def environment(version: str, base: str) -> Path:
    """The Python of `.venvs/<version>`, made or brought up to date when pyproject.toml or the C source changed."""
    folder = ROOT / ".venvs" / version
    python, stamp = folder / "bin/python", folder / ".installed"
    sources = [ROOT / "pyproject.toml", *sorted((ROOT / "mstxkit/_native").glob("*.[ch]"))]
    wanted = hashlib.sha256(b"".join(p.read_bytes() for p in sources) + POLARS[version].encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"setting up {folder.relative_to(ROOT)}", flush=True)
    if not python.exists():
        subprocess.run([base, "-m", "venv", folder], check=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, "--upgrade", "pip", "setuptools>=77", "wheel"], check=True)
    for stale in (ROOT / "mstxkit/_native").glob(f"hot.cpython-{version.replace('.', '')}-*.so"):
        stale.unlink()  # must not outlive a failed build, which is no error
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
    subprocess.run([*pip, "--no-build-isolation", "--editable", ".[test]", POLARS[version]], check=True, env=quiet)
    stamp.write_text(wanted)
    return python


def version_of(python: Path, package: str) -> str:
    """The installed version of a package, as that Python sees it."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


def run(part: Part, output: int | None = None) -> Outcome:
    """Run pytest for one part and count from its JUnit file; with `output` PIPE its output is shown at the end."""
    if output is None:
        print(f"\n=== {part.title} ===", flush=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith("MSTXKIT_") and k != "RAY_ADDRESS"}
    if part.native:
        env["MSTXKIT_NATIVE"] = part.native
    folder = Path(tempfile.mkdtemp())
    # A Ray of this part's own: it would join one that somebody else has started on this machine.
    env["RAY_TMPDIR"] = str(folder)
    report = folder / "junit.xml"
    command = [part.python, "-m", "pytest", "-q", "-m", part.markers, f"--junitxml={report}"]
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


def print_table(outcomes: list[Outcome]) -> None:
    """One line per part and the sum."""
    width = max(len(outcome.title) for outcome in outcomes)
    print(f"\n{'':{width}}  passed  failed  skipped  seconds")
    for one in outcomes:
        verdict = one.note or ("" if one.is_good else "NOTHING RAN" if not one.passed + one.failed else "FAILED")
        print(f"{one.title:{width}}  {one.passed:6}  {one.failed:6}  {one.skipped:7}  {one.seconds:7.0f}  {verdict}")
    passed, failed = sum(o.passed for o in outcomes), sum(o.failed for o in outcomes)
    print(f"{'all':{width}}  {passed:6}  {failed:6}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
