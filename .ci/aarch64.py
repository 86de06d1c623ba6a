"""Runs the marking, recorder and reading tests on aarch64, where Ascend hosts are: in qemu-user, on a real CPython.

All of it is in `build/aarch64`: Debian's arm64 packages of Python, unpacked; aarch64 wheels; a copy of the package and
of the tests, with the C engine cross-compiled into it. Processes that the tests start run there too: what Python calls
its executable is a wrapper that starts qemu. Needs Debian 12 with apt, `qemu-aarch64-static` and
`aarch64-linux-gnu-gcc`, which root gets installed. Standard library only; pytest's options go through PYTEST_ADDOPTS.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys

import environments
import sanitized

ROOT = sanitized.ROOT
FOLDER = ROOT / "build/aarch64"
SYSTEM, SITE, PROJECT = FOLDER / "system", FOLDER / "site", FOLDER / "project"
PYTHON = FOLDER / "python"
TOOLS = {"qemu-aarch64-static": "qemu-user-static", "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu"}
# CPython 3.11 and all that it links to.
DEBIAN = (
    "libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libffi8", "libssl3", "libbz2-1.0", "liblzma5",
    "libsqlite3-0", "libuuid1", "libncursesw6", "libtinfo6", "libreadline8", "libdb5.3", "libcrypt1", "libnsl2",
    "libtirpc3", "libzstd1", "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "python3.11",
    "libpython3.11-dev", "libpython3.11",
)  # fmt: skip
WHEELS = (
    "pytest", "pytest-timeout", "pytest-asyncio", "pytest-xdist", "hypothesis", "numpy", "polars<2", "wrapt", "pyyaml",
    "typer", "rich", "zstandard", "pydantic", "psutil",
)  # fmt: skip
PLATFORMS = ("manylinux_2_17_aarch64", "manylinux2014_aarch64", "manylinux_2_28_aarch64")
# Not the keeper's: qemu-user invents when a process itself began, so nobody can be sure whom a descriptor is of.
TESTS = ("tests/marking", "tests/engine", "tests/recorder", "tests/reading", "tests/processes/test_fork.py")
FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-strict-aliasing", "-Wall", "-Werror")
# Emulation takes ten times as long, and is no machine whose clock could be compared.
TIMEOUT_S = 3600
# What Python calls its executable; and the time that a test gives its children, which is for real machines.
IN_EVERY_PROCESS = """
import subprocess, sys
sys.executable = sys._base_executable = {python!r}
real_wait, real_communicate = subprocess.Popen.wait, subprocess.Popen.communicate
def wait(self, timeout=None):
    return real_wait(self, timeout and 30 * timeout)
def communicate(self, input=None, timeout=None):
    return real_communicate(self, input, timeout and 30 * timeout)
subprocess.Popen.wait, subprocess.Popen.communicate = wait, communicate
"""


def main(arguments: list[str]) -> int:
    """Prepare what is missing, build, test; pytest's status. Arguments take the place of the tests."""
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            install(package)
    if not PYTHON.exists():
        unpack_system()
        unpack_wheels()
    write_python()
    sanitized.copy(PROJECT)
    build()
    command = [PYTHON, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
    command += ["--timeout", str(TIMEOUT_S), "-m", sanitized.MARKERS + " and not nomem"]
    return subprocess.run([*command, *(arguments or TESTS)], cwd=PROJECT, env=environment()).returncode


def install(package: str) -> None:
    """A tool of this machine, by root."""
    if os.geteuid() or shutil.which("apt-get") is None:
        sys.exit(f"{package} is missing: apt-get install {package}")
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "install", "-y", "-qq", package], check=True, stdout=subprocess.DEVNULL)


def unpack_system() -> None:
    """Debian's arm64 packages, by an apt with folders of its own: this machine's stays as it is."""
    lists, archives, debs = FOLDER / "apt/lists", FOLDER / "apt/archives", FOLDER / "debs"
    for folder in (lists / "partial", archives / "partial", debs, SYSTEM):
        folder.mkdir(parents=True, exist_ok=True)
    (FOLDER / "apt/status").touch()
    settings = {
        "APT::Architecture": "arm64", "APT::Architectures": "arm64", "Dir::State::lists": lists,
        "Dir::State::status": FOLDER / "apt/status", "Dir::Cache": FOLDER / "apt", "APT::Sandbox::User": "root",
    }  # fmt: skip
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "download", *DEBIAN], check=True, cwd=debs)
    for package in debs.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, SYSTEM], check=True)


def unpack_wheels() -> None:
    """What the tests import, made for aarch64."""
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--target", SITE]
    options = ["--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp", "--no-compile", "--upgrade"]
    subprocess.run([*command, *platforms, *options, *WHEELS], check=True)


def write_python() -> None:
    """The wrapper, and the module by which every process calls it its executable."""
    (SITE / "sitecustomize.py").write_text(IN_EVERY_PROCESS.format(python=str(PYTHON)), encoding="utf-8")
    PYTHON.write_text(
        f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{PROJECT}:{SITE}" '
        f'exec qemu-aarch64-static -L {SYSTEM} {SYSTEM}/usr/bin/python3.11 "$@"\n',
        encoding="utf-8",
    )
    PYTHON.chmod(PYTHON.stat().st_mode | stat.S_IXUSR)


def build() -> None:
    """The engine, in the copy."""
    native = PROJECT / "mstxkit/engine/native"
    includes = [SYSTEM / "usr/include" / name for name in ("python3.11", "aarch64-linux-gnu/python3.11", "")]
    target = native / "hot.cpython-311-aarch64-linux-gnu.so"
    options = [*FLAGS, *(f"-I{include}" for include in includes)]
    subprocess.run(["aarch64-linux-gnu-gcc", *options, native / "hot.c", "-o", target, "-lpthread"], check=True)


def environment() -> dict[str, str]:
    """This one, for the C engine. Perfetto's trace processor stays this machine's own: the kernel runs both."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MSTXKIT_", "PYTHON"))}
    (traces,) = (str(ROOT / ".venvs" / folder) for folder in environments.TRACE_PROCESSOR)
    return {"TRACE_PROCESSOR_OF_TESTS": traces, **own, "MSTXKIT_NATIVE": "1"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
