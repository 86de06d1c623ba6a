"""All sinks together: installing them loads nothing and can be undone."""

from __future__ import annotations

from types import ModuleType

from builders import lives

from mstxkit import sinks
from mstxkit.engine.choose import engine


def test_installing_loads_no_framework_and_no_wrapt() -> None:
    installs = "from mstxkit import sinks; sinks.install_all()"

    assert not lives.loads(installs, of="torch torch_npu mindspore wrapt ctypes numpy")


def test_installing_twice_is_once_and_uninstalling_sends_nothing_more(installed: ModuleType) -> None:
    installed.install_all()
    installed.uninstall_all()

    assert not engine.recording()
    assert sinks.describe_all()["cann"].startswith("off")


def test_every_sink_says_what_it_does(installed: ModuleType) -> None:
    assert list(installed.describe_all()) == ["torch_npu", "mindspore", "torch", "cann"]
    assert all(installed.describe_all().values())
