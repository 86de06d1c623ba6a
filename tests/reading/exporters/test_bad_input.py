"""What no exporter may trip over: names of any kind, doubled and missing ranks, clocks far apart, odd durations."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest
from builders.odd_runs import CASES
from builders.run_files import new_run

pytest.importorskip("polars")

from mstxkit.reading import exporters
from mstxkit.reading.exporters import FOLDER, load_exporter
from mstxkit.reading.run import open_run


@pytest.mark.parametrize("to", exporters.list_formats())
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.__name__))
def test_every_exporter_writes_all_of_it(tmp_path: Path, case: Callable[[Path], int], to: str) -> None:
    exporter, target = load_exporter(to), tmp_path / "out"
    run = new_run(tmp_path / "run")
    count = case(run)
    if exporter.form == FOLDER:
        target.mkdir()

    opened = open_run(run)
    written = exporter.write_to(opened, target)

    assert len(opened.ranges()) == count
    assert written >= count
    files = [target] if target.is_file() else [file for file in target.rglob("*") if file.is_file()]
    assert count == 0 or sum(file.stat().st_size for file in files) > 0
