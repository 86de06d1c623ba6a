"""No memory: each allocation of each operation of the C engine fails in turn.

Nothing crashes, marking raises nothing, what is written is what was given, and what is lost has been counted. The whole
is `make nomem`; every seventh allocation of a few operations is failed here.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mstxkit.engine.choose import engine

_TESTS = Path(__file__).parents[1]
_STARVED = _TESTS / "builders/starved.py"
_LIMIT_S = 300
_SHORTLY = ("new_name", "attributes", "values_of_python", "stages", "marks")
_OPERATIONS = re.findall(r"^def (\w+)\(\) -> Operation", _STARVED.read_text(encoding="utf-8"), re.MULTILINE)

pytestmark = [
    pytest.mark.skipif(not engine.NATIVE, reason="the Python twin allocates as Python does"),
    pytest.mark.skipif(
        importlib.util.find_spec("_testcapi") is None, reason="this Python has no _testcapi, which fails allocations"
    ),
]


def _starve(operation: str, every: int) -> None:
    paths = os.pathsep.join((str(_TESTS), str(_TESTS.parent), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "MSTXKIT_NATIVE": "1", "PYTHONPATH": paths}
    environment.pop("MSTXKIT_RUN", None)
    done = subprocess.run(
        [sys.executable, str(_STARVED), operation, str(every)],
        capture_output=True, text=True, env=environment, timeout=_LIMIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]


@pytest.mark.parametrize("operation", _SHORTLY)
def test_an_allocation_that_fails_is_counted_and_harms_nobody(operation: str) -> None:
    _starve(operation, every=7)


@pytest.mark.nomem
@pytest.mark.timeout(_LIMIT_S)
@pytest.mark.parametrize("operation", _OPERATIONS)
def test_every_allocation_that_fails_is_counted_and_harms_nobody(operation: str) -> None:
    if operation == "decorating" and sys.version_info[:2] == (3, 12):
        pytest.skip("CPython 3.12 crashes by itself behind lru_cache")
    _starve(operation, every=1)
