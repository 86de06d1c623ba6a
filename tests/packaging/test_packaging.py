"""The package as shipped: sdist and wheel, with a compiler and without, installed where the source tree is not."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.daily(2), pytest.mark.wheel, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("pyproject.toml", "setup.py", "README.md", "mstxkit")
RECORD_AND_READ = """
import sys
import mstxkit
from mstxkit.engine.choose import engine

with mstxkit.capture(sys.argv[1]), mstxkit.stage("reward"):
    mstxkit.step()
rows = mstxkit.open_run(sys.argv[1]).ranges()
print(engine.NATIVE, rows["name"].to_list(), rows["step"].null_count(), mstxkit.__file__)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is needed to build, without anything built."""
    target = tmp_path_factory.mktemp("source")
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    return target


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    code = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    call([sys.executable, "-c", code, folder], cwd=source)
    return next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(sdist, tmp_path_factory.mktemp("wheel"), {})


@pytest.fixture(scope="module")
def wheel_without_compiler(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(sdist, tmp_path_factory.mktemp("wheel-plain"), {"CC": "/bin/false"})


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own, with the package and what it says it needs for reports."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    call([sys.executable, "-m", "venv", "--without-pip", folder])
    # What is imported is compiled then: numpy and polars have thousands of modules that are not.
    pip("--python", folder / "bin/python", "install", "--no-compile", f"{wheel}[report]")
    return folder / "bin/python"


def test_the_command_of_the_readme_installs_a_clone(source: Path) -> None:
    """What it needs itself was installed for `python`: here it is taken from this environment, without a network."""
    readme = (source / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^pip (install .*?) +#", readme, re.MULTILINE)
    target = source.parent / "clone"

    call(
        [
            sys.executable,
            "-m",
            "pip",
            "-q",
            *shlex.split(command),
            "--no-deps",
            "--no-build-isolation",
            "--target",
            target,
        ],
        cwd=source,
    )

    assert (target / "bin" / "mstxkit").exists() and (target / "mstxkit" / "py.typed").exists()


def build_wheel(sdist: Path, folder: Path, environment: dict[str, str]) -> Path:
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-cache-dir", "-w", folder, sdist, environment=environment)
    return next(folder.glob("*.whl"))


def pip(*arguments: object, environment: dict[str, str] | None = None) -> None:
    call([sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *arguments], environment=environment)


def call(command: list[object], cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """Run it; its output, or a failure that shows it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MSTXKIT_", "PYTHONPATH"))}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env={**env, **(environment or {})}, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def install(python: Path, wheel: Path) -> None:
    pip("--python", python, "install", "--no-deps", "--force-reinstall", wheel)


def names_in(archive: Path) -> set[str]:
    if archive.suffix == ".whl":
        return set(zipfile.ZipFile(archive).namelist())
    with tarfile.open(archive) as tar:
        return {name.partition("/")[2] for name in tar.getnames()}


def test_an_sdist_holds_all_that_a_build_and_the_stand_in_libraries_need(sdist: Path) -> None:
    wanted = [path for path in (ROOT / "mstxkit").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted = [ROOT / "setup.py", *(path for path in wanted if path.suffix != ".so")]

    assert {str(path.relative_to(ROOT)) for path in wanted} <= names_in(sdist)


def test_a_wheel_holds_the_package_with_its_types_and_the_pth_file_and_nothing_else(wheel: Path) -> None:
    names = names_in(wheel)

    assert {"mstxkit/py.typed", "mstxkit/engine/native/hot.pyi", "mstxkit/store/arguments.pyi"} <= names
    assert any(name.startswith("mstxkit/testing/cann/") for name in names)
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"mstxkit", "mstxkit.pth"}
    assert not [name for name in names if name.endswith((".c", ".h")) and "/testing/cann/" not in name]


def test_with_a_compiler_the_wheel_records_on_the_c_engine(wheel: Path, python: Path, tmp_path: Path) -> None:
    install(python, wheel)
    native, names, unstepped, where = answer(python, tmp_path)

    assert (native, names, unstepped) == ("True", "['reward']", "1")
    assert str(python.parents[1]) in where


def test_without_a_compiler_the_wheel_records_on_the_twin(
    wheel_without_compiler: Path, python: Path, tmp_path: Path
) -> None:
    install(python, wheel_without_compiler)
    native, names, unstepped, _ = answer(python, tmp_path)

    assert not [name for name in names_in(wheel_without_compiler) if name.endswith(".so")]
    assert (native, names, unstepped) == ("False", "['reward']", "1")


def answer(python: Path, folder: Path) -> list[str]:
    return call([python, "-c", RECORD_AND_READ, folder / "run"], cwd=folder).split()


def test_the_installed_command_reports_on_a_run(wheel: Path, python: Path, tmp_path: Path) -> None:
    install(python, wheel)
    answer(python, tmp_path)
    shown = call([python.parent / "mstxkit", "report", tmp_path / "run", "--json"], cwd=tmp_path)

    assert '"reward"' in shown
