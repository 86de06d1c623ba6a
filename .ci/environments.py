"""Makes the environments in `.venvs` that hold real frameworks: `environments.py frameworks ray-2.42.1 mindspore`.

Standard library only. What is there and up to date is left alone: packages are installed again when their list here
changes, mstxkit when `pyproject.toml`, `setup.py` or the C source does. PIP_TORCH holds pip's options for torch.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Callable, NamedTuple, Sequence

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".venvs"
PYTHON_VERSION = "3.11"
# What ray, torch and pyarrow have wheels of for that Python.
MACHINES = ("x86_64", "aarch64")

TORCH = "torch==2.13.0"
OLD_RAY = "ray==2.42.1"
VERL, OLDER_VERL = "0.9.1", ("0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.0")
# verl is installed without what it declares, which holds vllm-sized things; these are what it needs to be imported on a
# CPU, and what trl's GRPO needs to train there. The limits on transformers and tensordict are verl's own.
FRAMEWORKS = (
    "ray==2.60.0", "trl==1.16.0", "transformers>=5.5.3,!=5.6.0,<5.11", "accelerate", "datasets", "tokenizers",
    "tensordict>=0.8.0,!=0.9.0,<=0.10.0", "hydra-core", "omegaconf", "codetiming", "peft", "pylatexenc", "dill",
    "torchdata", "pillow", "TransferQueue>=0.1.10", "uvicorn", "fastapi", "cachetools", "pyzmq", "msgspec", "openai",
)  # fmt: skip
# verl up to 0.7.0 imports names that transformers 5 no longer has; these three go together, beside it on the path.
TRANSFORMERS_4 = ("transformers>=4.57,<5", "huggingface_hub<1", "datasets>=4.4,<4.5")
# What MindSpeed-RL ships with. It needs an older torch: its source is read, it is not imported.
SHIPPED_TORCH_NPU = "2.7.1"
# With numpy 2 some of its operators complain on stderr that they were built for numpy 1.
MINDSPORE = ("mindspore==2.10.0", "numpy<2")


class Unavailable(Exception):
    """This machine cannot have the environment, and that is nobody's fault: the message says why."""


def make(name: str) -> Path:
    """The Python of an environment, made or brought up to date.

    Raises:
        Unavailable: no Python 3.11 here, or a platform that the frameworks have no wheels for.
        subprocess.CalledProcessError: something could not be installed.
    """
    base, folder = base_python(), FOLDER / name
    environment = _Environment(folder)
    environment.create(base)
    if name == "frameworks":
        environment.once("packages", [TORCH, *FRAMEWORKS, VERL], lambda: _install_frameworks(environment))
        for version in OLDER_VERL:
            _unpack(environment, FOLDER / "verl" / version, [f"verl=={version}"])
        _unpack(environment, FOLDER / "verl/transformers-4", TRANSFORMERS_4)
        _unpack(environment, FOLDER / "torch_npu" / SHIPPED_TORCH_NPU, [f"torch_npu=={SHIPPED_TORCH_NPU}"])
    elif name == "mindspore":
        environment.once("packages", MINDSPORE, lambda: environment.pip(*MINDSPORE))
    else:
        environment.once("packages", [name], lambda: environment.pip(name.replace("-", "==", 1)))
    environment.once("installed", _sources(), environment.install_mstxkit)
    return environment.python


def base_python() -> Path:
    """A Python 3.11 to make environments of.

    Raises:
        Unavailable: there is none, or no wheels for this platform.
    """
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise Unavailable(f"no wheels for {sys.platform} on {platform.machine()}: left out")
    found = subprocess.run([ROOT / ".ci/find-python", PYTHON_VERSION], capture_output=True, text=True).stdout.strip()
    if not found:
        raise Unavailable(f"Python {PYTHON_VERSION} not found on this machine: left out")
    return Path(found)


class _Environment(NamedTuple):
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    def create(self, base: Path) -> None:
        if not self.python.exists():
            print(f"setting up {self.folder.relative_to(ROOT)}", flush=True)
            subprocess.run([base, "-m", "venv", self.folder], check=True)
            self.pip("--upgrade", "pip", "setuptools>=77", "wheel")

    def pip(self, *arguments: str) -> None:
        # Warnings are an error in the tests' environment, and pip is no test.
        command = [self.python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *arguments]
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PYTHONWARNINGS": "ignore"})

    def install_mstxkit(self) -> None:
        self.pip("--no-build-isolation", "--editable", ".[test]")

    def once(self, stamp: str, contents: Sequence[str], action: Callable[[], None]) -> None:
        """Do `action` unless it was done for the same contents."""
        file, wanted = self.folder / f".{stamp}", hashlib.sha256("\n".join(contents).encode()).hexdigest()
        if not file.exists() or file.read_text() != wanted:
            print(f"installing into {self.folder.relative_to(ROOT)}: {stamp}", flush=True)
            action()
            file.write_text(wanted)


def _install_frameworks(environment: _Environment) -> None:
    environment.pip(*shlex.split(os.environ.get("PIP_TORCH", "")), TORCH, "numpy", "pyyaml")
    environment.pip(*FRAMEWORKS)
    environment.pip("--no-deps", f"verl=={VERL}")


def _unpack(environment: _Environment, folder: Path, requirements: Sequence[str]) -> None:
    """Packages beside the environment, for tests that put them on the path themselves."""
    if not folder.exists():
        print(f"unpacking {', '.join(requirements)}", flush=True)
        partial = folder.with_name(f"{folder.name}.partial")
        environment.pip("--no-deps", "--no-compile", "--upgrade", "--target", str(partial), *requirements)
        partial.rename(folder)


def _sources() -> list[str]:
    """What an editable install depends on."""
    files = [ROOT / "pyproject.toml", ROOT / "setup.py", *sorted((ROOT / "mstxkit/_native").glob("*.[ch]"))]
    return [file.read_text() for file in files if file.exists()]


def main(names: Sequence[str]) -> int:
    """Make the environments named; 0 also when this machine cannot have them, which is said."""
    try:
        for name in names:
            make(name)
    except Unavailable as reason:
        print(reason)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
