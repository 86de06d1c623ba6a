"""An option and a limit are one entry each: one that is added arrives everywhere, in a process that knows it from the
start.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mstxkit.store import limits, options

RECORDED = Path(__file__).resolve().parents[1]
ADDED = """
import contextlib, io, json, sys, tempfile
from pathlib import Path
from mstxkit.errors import ConfigError
from mstxkit.store import limits, options
from mstxkit.store.options import DEEP, EVERYWHERE, PROFILE, Option, Term

# The one entry of an option.
options.OPTIONS += (Option("ticks", "Ticks of it.", Term("with_ticks", PROFILE), Term("ticks"), where=EVERYWHERE),)

# The one entry of a limit.
MORE = '    files: Annotated[Optional[int], Limit(int, 100, "Files of it.")] = None'
source = Path(limits.__file__).read_text().replace("    bytes:", MORE + chr(10) + "    bytes:", 1)
exec(compile(source, limits.__file__, "exec"), vars(limits))

from builders import recorded_profilers as recorded
import mstxkit.cli
from mstxkit.config.model import Config
from mstxkit.profiling import backends, presets
from mstxkit.profiling.declare import Preset
from mstxkit.store.request import Known, check_request

def asked(**given):
    try:
        return check_request({"stage": "actor_update", "ranks": [0], **given}, Known(["actor_update"], [0], ["full"]))
    except ConfigError as exc:
        return str(exc)

def called(name, made, preset):
    sys.modules.update(made[1])
    outcome = backends.load_backend(name).start(preset, Path(tempfile.mkdtemp(dir=folder))).stop()
    described = backends.load_backend(name).described(preset)[1]
    return {call: given for call, given in made[0].calls}, described, outcome.problems

folder = Path(sys.argv[1])
told = {}
preset = presets.made_preset(None, [("ticks", True)]).preset
told["presets"] = [preset.ticks, Preset("mine", "level0", ticks=True).ticks, presets.load_preset("full").ticks]
right = asked(options={"ticks": True}, limits={"files": 3})
told["request"] = right.as_json()
told["wrong"] = [asked(options={"ticks": 7}), asked(limits={"files": 101})]
(folder / "own.yaml").write_text("mstxkit: {enabled: true, ticks: true, limits: {files: 3}}")
written = io.StringIO()
with contextlib.redirect_stdout(written), contextlib.suppress(SystemExit):
    mstxkit.cli.build_application()(["config", "show", str(folder / "own.yaml"), "--json"], prog_name="mstxkit")
told["shown"] = json.loads(written.getvalue())
described = Config.model_json_schema()
fields = {**described["properties"], **described["$defs"]["Limits"]["properties"]}
told["schema"] = [fields["ticks"]["description"], fields["files"]["description"]]

found = recorded.recorded("torch_npu 2.13.0")
newer = {"profile": {**found["profile"], "with_ticks": "False"}}
calls, notes, problems = called("torch_npu", recorded.torch_npu("torch_npu 2.13.0", **newer), preset)
told["torch_npu"] = [calls["profile"]["with_ticks"], notes, problems]
calls, notes, problems = called("torch_npu", recorded.torch_npu("torch_npu 2.13.0"), preset)
told["without it"] = ["with_ticks" in calls["profile"], notes, problems]
made = recorded.mindspore()
calls, notes, problems = called("mindspore", made, preset)
told["mindspore"] = ["ticks" in calls["_ExperimentalConfig"], notes, problems]
told["torch"] = backends.load_backend("torch").described(preset)[1]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process says that has one option and one limit more."""
    code = f"import sys; sys.path.insert(0, {str(RECORDED)!r})\n{ADDED}"
    command = [sys.executable, "-c", code, str(tmp_path_factory.mktemp("added"))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_an_option_more_is_one_of_presets(told: dict[str, Any]) -> None:
    assert told["presets"] == [True, True, False]


def test_an_option_and_a_limit_more_may_be_asked_for_and_are_checked(told: dict[str, Any]) -> None:
    assert told["request"]["options"] == {"ticks": True}
    assert told["request"]["limits"] == {"seconds": None, "bytes": None, "files": 3}
    assert "options.ticks=7: must be true or false" in told["wrong"][0]
    assert "limits.files=101: must be a whole number from 1 to 100" in told["wrong"][1]


def test_an_option_and_a_limit_more_are_of_a_configuration_and_shown(told: dict[str, Any]) -> None:
    shown = told["shown"]

    assert (shown["config"]["ticks"], shown["config"]["limits"]["files"]) == (True, 3)
    assert told["schema"] == ["Ticks of it.", "Files of it."]


def test_an_option_more_is_what_each_profiler_calls_it_or_noted_where_it_has_none(told: dict[str, Any]) -> None:
    lost = "is left out: this version has no such option"

    assert told["torch_npu"] == [True, [], []]
    assert told["without it"] == [False, [f"with_ticks=True {lost}"], []]
    assert told["mindspore"] == [False, [f"ticks=True {lost}"], []]
    assert "ticks=True is left out: torch.profiler has no such option" in told["torch"]


def test_every_default_may_be_given_and_what_a_request_may_set_a_preset_may_too() -> None:
    for option in options.OPTIONS:
        assert option.takes(option.default), option.name
        assert option.takes(option.preset_value), option.name
        assert options.REQUEST not in option.where or options.PRESET in option.where, option.name


@pytest.mark.parametrize(("name", "right", "wrong"), [("seconds", 0.5, 0), ("seconds", 9, 1e9), ("bytes", 1, 1.5)])
def test_a_limit_has_one_range(name: str, right: Any, wrong: Any) -> None:
    limit = limits.by_name()[name]

    assert limit.takes(right)
    assert not limit.takes(wrong)
