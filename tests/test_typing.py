"""What a type checker sees of the public names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from builders import argument_types

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "typing").glob("*.py")), ids=lambda path: path.stem)
def test_public_signatures_are_as_pinned(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mypy = pytest.importorskip("mypy.api")
    monkeypatch.chdir(ROOT)

    report, errors, status = mypy.run(["--strict", "--config-file", "pyproject.toml", str(path)])

    assert status == 0, report + errors


def test_what_is_typed_is_what_there_is() -> None:
    """Run `PYTHONPATH=.:tests python tests/builders/argument_types.py` to write it anew."""
    assert argument_types.STUB.read_text(encoding="utf-8") == argument_types.made()


def test_the_stub_of_the_engine_has_what_the_engine_has(tmp_path: Path) -> None:
    """mypy's stubtest: every name, and every argument of the functions of which C says them. Nothing is excepted."""
    pytest.importorskip("mypy.stubtest")
    pytest.importorskip("mstxkit.engine.native.hot")
    (tmp_path / "mypy.ini").write_text("[mypy]\nfollow_imports = skip\n")
    command = [sys.executable, "-m", "mypy.stubtest", "mstxkit.engine.native.hot"]
    alone = ["--mypy-config-file", str(tmp_path / "mypy.ini")]

    done = subprocess.run([*command, *alone], cwd=ROOT, capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stdout + done.stderr
