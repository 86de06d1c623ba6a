"""`.ci/systems.py`: sources of systems from archives, else from where they are published, by branch or tag."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / ".ci/systems.py"


@pytest.fixture
def systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("systems", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "systems", module)
    spec.loader.exec_module(module)
    for name, value in {"PLACE": "systems", "ARCHIVES": "archives"}.items():
        monkeypatch.setattr(module, name, tmp_path / value)
    monkeypatch.setattr(module, "_HOST", f"file://{tmp_path}/published")
    wanted = (module.System("Ascend/Mind", "26.1.0"), module.System("NVIDIA/Mega", "core_v0.12.1"))
    monkeypatch.setattr(module, "MINDSPEED_LLM", wanted)
    monkeypatch.setattr(module, "MINDSPEED_RL", ())
    return module


def publish(folder: Path, name: str, branch: str) -> None:
    """A repository whose default branch has something else."""
    repository = folder / "published" / f"{name}.git"
    repository.mkdir(parents=True)
    who = {f"GIT_{whose}_{what}": "x" for whose in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for which in ("main", branch):
        (repository / "version.py").write_text(which)
        for command in (
            ["init", "-q", "-b", which],
            ["checkout", "-q", "-B", which],
            ["add", "."],
            ["commit", "-qm", "x"],
        ):
            subprocess.run(["git", *command], cwd=repository, env={**os.environ, **who}, check=True)
    subprocess.run(["git", "checkout", "-q", "main"], cwd=repository, check=True)


def found(folder: Path) -> dict[str, str]:
    return {path.parent.name: path.read_text() for path in (folder / "systems").glob("*/version.py")}


def test_what_no_archive_has_is_cloned_at_its_version(systems: ModuleType, tmp_path: Path) -> None:
    for system in systems.MINDSPEED_LLM:
        publish(tmp_path, system.name, system.version)

    systems.main()
    systems.main()

    assert found(tmp_path) == {"Mind_26.1.0": "26.1.0", "Mega_core_v0.12.1": "core_v0.12.1"}
    assert systems.are_to_be_had(systems.MINDSPEED_LLM)


def test_an_archive_goes_first(systems: ModuleType, tmp_path: Path) -> None:
    mind, mega = systems.MINDSPEED_LLM
    publish(tmp_path, mega.name, mega.version)
    (tmp_path / "Mind").mkdir()
    (tmp_path / "Mind" / "version.py").write_text("packed")
    mind.archive.parent.mkdir()
    with tarfile.open(mind.archive, "w:xz") as archive:
        archive.add(tmp_path / "Mind", "Mind")

    systems.main()

    assert found(tmp_path) == {"Mind_26.1.0": "packed", "Mega_core_v0.12.1": "core_v0.12.1"}


def test_what_cannot_be_had_ends_it_and_leaves_nothing_half_done(systems: ModuleType, tmp_path: Path) -> None:
    mind, _ = systems.MINDSPEED_LLM
    publish(tmp_path, mind.name, "another_branch")

    with pytest.raises(SystemExit, match=r"Ascend/Mind 26\.1\.0: not to be had"):
        systems.main()

    assert [*(tmp_path / "systems").iterdir()] == []
    assert not systems.are_to_be_had(systems.MINDSPEED_LLM)
