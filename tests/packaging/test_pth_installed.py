"""`mstxkit.pth` and the entry points as pip places them: from a wheel and from an editable install, and gone again."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from builders import soak

pytestmark = [pytest.mark.days("odd"), pytest.mark.daily(2), pytest.mark.wheel, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
NAME = "mstxkit.pth"
WAITS = "import sys; print([type(f).__name__ for f in sys.meta_path if type(f).__module__ == 'mstxkit.bootstrap.pth'])"
PLUGINS = """
import sys
from importlib import metadata
for group in sys.argv[1:]:
    found = metadata.entry_points()
    found = found.select(group=group) if hasattr(found, 'select') else found.get(group, ())
    print(*(one.load() is not None for one in found if one.value.startswith("mstxkit.")))
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is needed to build; an editable install builds its extension into it."""
    target = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, target)
    shutil.copytree(ROOT / "mstxkit", target / "mstxkit", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return target


BUILD = """
import sys
from setuptools import build_meta as build
folder = sys.argv[1]  # setuptools writes into sys.argv
build.build_wheel(f"{folder}/wheel")
build.build_editable(f"{folder}/editable")
build.build_editable(f"{folder}/strict", {"editable_mode": "strict"})
"""


@pytest.fixture(scope="module")
def wheels(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What a build backend gives pip for each way to install."""
    folder = tmp_path_factory.mktemp("wheels")
    for way in ("wheel", "editable", "strict"):
        (folder / way).mkdir()
    call([sys.executable, "-W", "ignore", "-c", BUILD, folder], cwd=source, CFLAGS="-O0")  # nobody asks how fast it is
    return {wheel.parent.name: wheel for wheel in folder.glob("*/*.whl")}


@pytest.fixture
def python(tmp_path: Path) -> Path:
    call([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"])
    return tmp_path / "venv/bin/python"


def call(command: list[object], cwd: Path | None = None, **environment: str) -> str:
    """Run it; its output, or a failure that shows it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MSTXKIT_", "PYTHONPATH"))}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env={**env, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def pip(python: Path, *arguments: object) -> None:
    call([sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "--python", python, *arguments])


def placed(python: Path) -> list[Path]:
    """Every trace of mstxkit in the site-packages of an environment."""
    return [path for path in python.parents[1].glob("lib/python3*/site-packages/*") if "mstxkit" in path.name]


@pytest.mark.parametrize("way", ["wheel", *soak.sample(["editable", "strict"], 1)])
def test_an_installed_file_works_and_uninstalling_takes_it_away(
    wheels: dict[str, Path], python: Path, tmp_path: Path, way: str
) -> None:
    pip(python, "install", "--no-deps", wheels[way])
    is_there = [path.name for path in placed(python) if path.name == NAME]
    asked = call([python, "-c", WAITS], cwd=tmp_path, MSTXKIT_AUTOPATCH="all")
    unasked = call([python, "-c", WAITS], cwd=tmp_path)
    pip(python, "uninstall", "--yes", "mstxkit")

    assert is_there == [NAME]
    assert (asked.strip(), unasked.strip()) == ("['Waiting']", "[]")
    assert placed(python) == []


@pytest.mark.parametrize("way", ["wheel", "editable", "strict"])
def test_the_record_of_a_wheel_tells_the_truth_about_it(wheels: dict[str, Path], way: str) -> None:
    with zipfile.ZipFile(wheels[way]) as archive:
        (record,) = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
        rows = {row[0]: row[1:] for row in csv.reader(archive.read(record).decode().splitlines())}
        content = archive.read(NAME)
        names = archive.namelist()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()

    assert content == (ROOT / "mstxkit/bootstrap" / NAME).read_bytes()
    assert rows[NAME] == [f"sha256={digest}", str(len(content))]
    assert sorted(rows) == sorted(names)


def test_installing_again_leaves_one(wheels: dict[str, Path], python: Path) -> None:
    for way in ("wheel", "editable", "wheel"):
        pip(python, "install", "--no-deps", "--force-reinstall", wheels[way])

    assert [path.name for path in placed(python) if path.suffix == ".pth"] == [NAME]


def test_frameworks_find_the_plug_ins_of_an_installed_package(
    wheels: dict[str, Path], python: Path, tmp_path: Path
) -> None:
    pip(python, "install", "--no-deps", wheels["wheel"])
    groups = ("verl.plugins", "vllm.general_plugins", "sglang.srt.plugins")

    assert call([python, "-c", PLUGINS, *groups], cwd=tmp_path).split() == ["True"] * 3
