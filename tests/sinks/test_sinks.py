"""All sinks together: installing them loads nothing and can be undone."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

from mstxkit import sinks
from mstxkit.engine.choose import engine


def test_installing_loads_no_framework_and_no_wrapt() -> None:
    script = (
        "import sys; from mstxkit import sinks; sinks.install_all()\n"
        "heavy = ('torch', 'torch_npu', 'mindspore', 'wrapt', 'ctypes', 'numpy')\n"
        "print([name for name in heavy if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "[]"


def test_installing_twice_is_once_and_uninstalling_sends_nothing_more(installed: ModuleType) -> None:
    installed.install_all()
    installed.uninstall_all()

    assert not engine.recording()
    assert sinks.states()["cann"].startswith("off")


def test_every_sink_says_what_it_does(installed: ModuleType) -> None:
    assert list(installed.states()) == ["torch_npu", "mindspore", "torch", "cann"]
    assert all(installed.states().values())
