from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from mstxkit.host import listing

# Where anything below the installed package is listed, opened or asked for.
COUNTS = """
import json, os, sys
from mstxkit.profiling import backends, presets

touched = []
def hook(event, arguments):
    if event in ("os.listdir", "os.scandir", "open") and arguments and "mstxkit" in str(arguments[0]):
        touched.append([event, str(arguments[0])])

backends.chosen(), presets.names()
sys.addaudithook(hook)
for _ in range(3):
    backends.chosen(), presets.names()
print(json.dumps(touched))
"""


def test_modules_are_named_in_order_without_private_ones(tmp_path: Path) -> None:
    for name in ("second.py", "first.py", "_own.py", "data.txt"):
        (tmp_path / name).touch()

    assert listing.modules_in([str(tmp_path)]) == ["first", "second"]


def test_who_is_on_duty_reads_nothing_of_the_environment_again() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTS], capture_output=True, text=True, timeout=60)

    assert json.loads(done.stdout) == [], done.stderr
