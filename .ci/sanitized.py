"""Runs the engine's and the recorder's tests on a C engine built with address and undefined-behaviour sanitizers.

All of it is in `build/asan`: a copy of the package and of the tests, and the engine that gcc builds into it. Leaks are
not looked for, as CPython's own cannot be told from ours. Standard library only; options for pytest go through
PYTEST_ADDOPTS.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build/asan"
NATIVE = FOLDER / "mstxkit/engine/native"
COPIED = ("mstxkit", "tests", "pyproject.toml", "benchmarks", "examples", "docs", "README.md", "setup.py")
TESTS = ("tests/engine", "tests/recorder")
# With LD_PRELOAD set, sinks ask by ctypes whether a tool is loaded. One of the others preloads a library of its own;
# and the memory of the sanitizers asks the system for more.
LEFT_OUT = (
    "tests/engine/test_choose.py::test_loading_an_engine_loads_nothing_heavy",
    "tests/recorder/test_handing_over.py::test_stages_take_no_lock_and_a_step_only_to_wake_the_sealer",
    "tests/recorder/test_handing_over.py::test_stages_and_steps_call_nothing_of_the_system",
)
# What tells of fatal signals is under test: the sanitizer leaves them alone. What it finds itself it says all the same.
_SIGNALS = ("segv", "sigbus", "sigfpe", "sigill", "abort")
_OPTIONS = ("detect_leaks=0", "abort_on_error=1", "allocator_may_return_null=1", *(f"handle_{of}=0" for of in _SIGNALS))
MARKERS = "not npu and not wheel and not slow and not ray and not frameworks and not mindspore"
FLAGS = (
    "-g", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Build, then test; pytest's status. Arguments take the place of the tests."""
    compiler = shutil.which("gcc")
    if compiler is None:
        print("no gcc is found: nothing was tested")
        return 1
    copy(FOLDER)
    build(compiler)
    os.chdir(FOLDER)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "--timeout", "600"]
    command += ["-m", MARKERS, *(f"--deselect={test}" for test in LEFT_OUT)]
    return subprocess.run([*command, *(arguments or TESTS)], env=environment(compiler)).returncode


def copy(folder: Path) -> None:
    """What is tested, without anything that was built."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    left_out = shutil.ignore_patterns("*.so", "__pycache__")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=left_out)
        else:
            shutil.copy(source, folder / name)


def build(compiler: str) -> None:
    """The engine, beside its sources in the copy."""
    target = NATIVE / f"hot{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = sysconfig.get_paths()["include"]
    subprocess.run([compiler, *FLAGS, f"-I{include}", NATIVE / "hot.c", "-o", target, "-lpthread"], check=True)


def environment(compiler: str) -> dict[str, str]:
    """The sanitizers' libraries come first in every process; an error ends it."""
    libraries = [_library(compiler, name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
    own = {name: value for name, value in os.environ.items() if not name.startswith("MSTXKIT_")}
    return {
        **own,
        "MSTXKIT_NATIVE": "1",
        "PYTHONPATH": str(FOLDER),
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": ":".join(_OPTIONS),
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def _library(compiler: str, name: str) -> str:
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return os.path.realpath(found.stdout.strip())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
