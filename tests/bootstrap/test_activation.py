"""`autopatch`, `unpatch`, `patch_report`: this process, its children, and what the run says of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest
from builders import lives

import mstxkit
from mstxkit import Patch, Target
from mstxkit.bootstrap import activation
from mstxkit.errors import PatchError
from mstxkit.patching import registry
from mstxkit.patching.report import Reason

# Of frameworks that are off by default what is on.
ALWAYS = {"torch.distributed", "ray.get"}


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A framework of one module, and its targets in a YAML file."""
    name = f"acme_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text("def loss(b): return len(b)\ndef score(b): return 1\n")
    (tmp_path / "targets.yaml").write_text(
        f"framework: {name}\ntargets:\n  - path: {name}:loss\n    stage: reward\n  - {name}:gone\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    mstxkit.unpatch()
    sys.modules.pop(name, None)


def test_targets_of_a_yaml_file_are_patched_and_put_back(acme: str, tmp_path: Path) -> None:
    report = mstxkit.autopatch(targets=tmp_path / "targets.yaml")
    module = __import__(acme)

    states = {one.path: (one.state, one.reason) for one in mstxkit.patch_report().targets}
    assert report.counts()[acme]["waiting"] == 2
    assert states == {f"{acme}:loss": ("applied", ""), f"{acme}:gone": ("skipped", Reason.ABSENT)}
    mstxkit.unpatch(acme)
    assert not hasattr(module.loss, "__wrapped__")
    assert not mstxkit.patch_report().targets


def test_children_are_told_by_the_environment_and_no_longer_after_unpatch(acme: str, tmp_path: Path) -> None:
    file = tmp_path / "targets.yaml"

    mstxkit.autopatch("verl+extra", targets=str(file))
    mstxkit.autopatch("verl+extra")
    assert os.environ["MSTXKIT_AUTOPATCH"] == f"verl+extra,{file}"

    mstxkit.unpatch()
    assert "MSTXKIT_AUTOPATCH" not in os.environ


def test_children_are_not_told_what_has_been_unpatched(acme: str, tmp_path: Path) -> None:
    file = tmp_path / "targets.yaml"
    mstxkit.autopatch()
    mstxkit.autopatch("verl+extra", targets=str(file))

    mstxkit.unpatch("verl+extra", acme)

    left = {name for name in registry.list_frameworks() if registry.load_patch(name).default} - {"verl"} | ALWAYS
    assert set(os.environ["MSTXKIT_AUTOPATCH"].split(",")) == left == set(mstxkit.patch_report().counts())


def test_without_a_name_every_framework_that_is_on_by_default_is_patched() -> None:
    report = mstxkit.autopatch()
    mstxkit.unpatch()

    expected = {name for name in registry.list_frameworks() if registry.load_patch(name).default}
    assert set(report.counts()) == expected | ALWAYS
    assert "torch" not in expected


@pytest.mark.parametrize("name", ["mine.yaml", ["verl", "ray"], 3])
def test_what_is_no_name_is_told_where_targets_go(name: Any) -> None:
    with pytest.raises(PatchError, match="is no framework's name; targets of your own go into targets="):
        mstxkit.autopatch(name)


def test_an_unknown_framework_is_refused_with_the_nearest_names_and_nothing_is_patched() -> None:
    with pytest.raises(PatchError, match="did you mean mindspeed_rl"):
        mstxkit.autopatch("verl", "mindspeed-rl")

    assert not mstxkit.patch_report().targets


def test_targets_given_as_python_objects_stay_in_this_process_and_the_report_says_so(acme: str) -> None:
    report = mstxkit.autopatch(targets=Patch(acme, "any", (Target(f"{acme}:loss"),)))

    assert any("stay in this process" in note for note in report.notes)
    assert "MSTXKIT_AUTOPATCH" not in os.environ


def test_the_environment_is_obeyed_and_what_is_wrong_in_it_is_logged(
    acme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MSTXKIT_AUTOPATCH", f"no_such_framework, {tmp_path / 'targets.yaml'}")

    activation.autopatch_from_environment()

    assert set(mstxkit.patch_report().counts()) == {acme}
    assert "no_such_framework" in caplog.text


def test_under_the_kill_switch_every_target_says_that_it_is_off() -> None:
    program = "import mstxkit; r = mstxkit.autopatch('verl'); print({(o.state, o.reason) for o in r.targets})"

    assert lives.run(program, MSTXKIT_OFF="1").strip() == str({("skipped", Reason.OFF)})


def test_a_run_says_what_became_of_each_target_in_each_process(acme: str, tmp_path: Path, run: Path) -> None:
    pytest.importorskip("polars")
    with mstxkit.capture(run):
        mstxkit.autopatch(targets=tmp_path / "targets.yaml")
        __import__(acme)
        table = mstxkit.open_run(run).patches()

    rows: list[dict[str, Any]] = table.select("pid", "path", "state", "reason").to_dicts()
    assert rows == [
        {"pid": os.getpid(), "path": f"{acme}:loss", "state": "applied", "reason": ""},
        {"pid": os.getpid(), "path": f"{acme}:gone", "state": "skipped", "reason": Reason.ABSENT},
    ]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"targets": [1]}', b'{"targets": 3}', b"\xff", b"{" * 3000])
def test_a_damaged_record_of_patches_is_listed_as_damage(run: Path, content: bytes) -> None:
    pytest.importorskip("polars")
    with mstxkit.capture(run), mstxkit.mstx_range("x"):
        pass
    process = mstxkit.open_run(run).processes()["process"][0]
    folder = run / "patches"
    folder.mkdir()
    (folder / f"{process}.json").write_bytes(content)

    opened = mstxkit.open_run(run)

    assert opened.patches().height == 0
    assert ["record of patches" in one.reason for one in opened.damage] == [True]
    assert opened.ranges().height == 1
