"""What a type checker sees of the public names."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "typing").glob("*.py")), ids=lambda path: path.stem)
def test_public_signatures_are_as_pinned(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mypy = pytest.importorskip("mypy.api")
    monkeypatch.chdir(ROOT)

    report, errors, status = mypy.run(["--strict", "--config-file", "pyproject.toml", str(path)])

    assert status == 0, report + errors
