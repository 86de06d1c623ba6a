from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import soak

from mstxkit.host import listing
from mstxkit.host.listing import ListedFolder

# Where anything below the installed package is listed, opened or asked for.
COUNTS = """
import json, os, sys
from mstxkit.profiling import backends, presets

touched = []
def hook(event, arguments):
    if event in ("os.listdir", "os.scandir", "open") and arguments and "mstxkit" in str(arguments[0]):
        touched.append([event, str(arguments[0])])

backends.choose_backend(), presets.list_presets()
sys.addaudithook(hook)
for _ in range(3):
    backends.choose_backend(), presets.list_presets()
print(json.dumps(touched))
"""


def test_modules_are_named_in_order_without_private_ones(tmp_path: Path) -> None:
    for name in ("second.py", "first.py", "_own.py", "data.txt"):
        (tmp_path / name).touch()

    assert listing.modules_in([str(tmp_path)]) == ["first", "second"]


def test_who_is_on_duty_reads_nothing_of_the_environment_again() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTS], capture_output=True, text=True, timeout=60)

    assert json.loads(done.stdout) == [], done.stderr


def test_a_folder_in_which_nothing_was_made_or_removed_is_not_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").touch()
    os.utime(tmp_path, (1, 1))
    folder = ListedFolder(tmp_path)
    first = folder.names()
    monkeypatch.setattr(os, "listdir", lambda path: pytest.fail("it was listed"))

    assert folder.names() is first
    assert first == {"one"}


@pytest.mark.parametrize("seed", range(soak.rounds(40, 4)))
def test_it_knows_every_name_whatever_pauses_lie_between(tmp_path: Path, seed: int) -> None:
    draw, folder = random.Random(seed), ListedFolder(tmp_path)
    for number in range(60):
        (tmp_path / str(number)).touch()
        if draw.random() < 0.3:
            (tmp_path / str(draw.randrange(number + 1))).unlink(missing_ok=True)
        time.sleep(draw.choice([0, 0, 0.0005, 0.06]))
        assert folder.names() == set(os.listdir(tmp_path))


def test_a_folder_that_was_replaced_is_listed_and_one_that_is_gone_is_none(tmp_path: Path) -> None:
    folder = ListedFolder(tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "name").touch()
    for place in ("run", "other"):
        os.utime(tmp_path / place, (1, 1))
    before = folder.names()
    os.rename(tmp_path / "run", tmp_path / "old")
    os.rename(tmp_path / "other", tmp_path / "run")
    after = folder.names()
    os.rename(tmp_path / "run", tmp_path / "older")

    assert (before, after) == (set(), {"name"})
    with pytest.raises(FileNotFoundError):
        folder.names()
