"""A configuration acts: by `capture`, by MSTXKIT_CONFIG, in children too. Real capture, stand-in session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Iterator

import pytest
from builders import lives
from builders.rank_on_duty import Recording

import mstxkit
from mstxkit import faults
from mstxkit.errors import ConfigError
from mstxkit.escalation import asking
from mstxkit.escalation.duty import beginning, first_step
from mstxkit.escalation.duty import duty as duties
from mstxkit.host import identity
from mstxkit.patches import _takes_over
from mstxkit.store import fate

WITHIN_S = 20.0
OWN = {"mstxkit": {"enabled": True, "stages": ["actor_update"], "window": {"first_step": 2}, "ranks": [0]}}
RL = {"profiler_config": {"integrated": {
    "profile": True, "stage": "actor_update", "profile_step_start": 2, "profile_step_end": 3, "profile_ranks": [0],
}}}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for variable in ("RANK", "WORLD_SIZE", "MSTXKIT_CONFIG", "MSTXKIT_PLANNED"):
        monkeypatch.delenv(variable, raising=False)
    identity.forget_learnt()
    with lives.own_run(tmp_path) as folder:
        yield folder


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Recording:
    """The session that the next process on duty makes; a busy machine does not put it off."""
    for module in (beginning, first_step):
        monkeypatch.setattr(module, "WAITS_AT_MOST_S", WITHIN_S)
    session = Recording()
    monkeypatch.setattr(duties, "OneSession", lambda: session)
    return session


def trains(steps: int = 4) -> None:
    for number in range(1, steps + 1):
        mstxkit.step(number)
        for key in ("actor_generate", "actor_update"):
            with mstxkit.stage(key):
                pass


def recorded(session: Recording) -> list[tuple[str, int | None]]:
    return [(order.stage, order.step) for order in session.orders]


def states(run: Path) -> list[tuple[str, str]]:
    control = asking.control_of(run)
    stood = map(asking.fates_of(control).progress, fate.read_asked(control))
    return [(str(progress), report.reason) for progress in stood for report in progress.reports]


@pytest.mark.parametrize("form", ["dict", "file", "Config", "environment", "rl"])
def test_the_window_that_it_names_is_recorded(
    run: Path, session: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(json.dumps(OWN))
    if form == "environment":
        monkeypatch.setenv("MSTXKIT_CONFIG", str(file))
    config = {"dict": OWN, "file": file, "Config": mstxkit.configure(OWN), "rl": RL}.get(form)

    with mstxkit.capture(run, config=config):
        trains()

    assert recorded(session) == [("actor_update", 2)]
    assert states(run) == [("done", "")]
    assert faults.counts == {}


def test_without_a_run_the_folder_that_it_names_gets_one(run: Path, tmp_path: Path) -> None:
    with mstxkit.capture(config={"mstxkit": {**OWN["mstxkit"], "path": str(tmp_path / "asked")}}) as capture:
        pass

    assert capture.run is not None
    assert capture.run.parent == tmp_path / "asked"
    assert (capture.run / "run.json").exists()


def test_a_window_of_the_first_step_is_recorded_and_a_whole_one_too(run: Path, session: Recording) -> None:
    with mstxkit.capture(run, config={"mstxkit": {"enabled": True, "window": {"steps": 2}}}):
        trains()

    assert recorded(session) == [("all", 1)]
    assert session.ends == [("its stage or sample is complete", [1, 2])]


def test_what_is_planned_is_listed_before_anybody_trains(run: Path, session: Recording) -> None:
    with mstxkit.capture(run, config=OWN):
        assert states(run) == [("queued", "planned for step 2")]


def test_a_capture_that_runs_already_takes_a_configuration_too(run: Path, session: Recording) -> None:
    with mstxkit.capture(run):
        with mstxkit.capture(run, config=OWN):
            trains()

    assert recorded(session) == [("actor_update", 2)]


def test_light_capture_and_budgets_are_part_of_it(run: Path) -> None:
    section = {"light": "every 3 steps, 1 step", "budgets": {"hour_s": 7, "run_bytes": 9}}
    with mstxkit.capture(run, config={"mstxkit": section}, hour_s=8):
        settings = mstxkit.capturing._beside.settings  # type: ignore[attr-defined]

    assert (settings.light, settings.hour_s, settings.run_bytes) == ("every 3 steps, 1 step", 8, 9)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"mstxkit": {"enabled": True, "level": "level9"}}, "mstxkit.level='level9'"),
        ({"mstxkit": {"enabled": True, "ranks": [9]}}, "there is no such rank: ranks are 0 to 3"),
        ({"mstxkit": {"enabled": True, "l2_cache": True}}, "a session of mstxkit's does not record this"),
        ({"mstxkit": {"light": "sometimes"}}, "every 100 steps, 1 step"),
        ({"mstxkit": {"budgets": {"hours": 1}}}, "mstxkit.budgets.hours: unknown key"),
        ({"nothing": {}}, "no configuration is known in it"),
        ("nowhere.yaml", "nowhere.yaml"),
    ],
)
def test_what_cannot_be_carried_out_raises_before_anything_begins(
    run: Path, monkeypatch: pytest.MonkeyPatch, config: Any, words: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")):
        mstxkit.capture(run, config=config)

    assert not run.exists()
    assert not mstxkit.status().on


def test_ranks_that_turn_out_not_to_exist_are_refused_by_the_request(
    run: Path, session: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mstxkit.capture(run, config={"mstxkit": {**OWN["mstxkit"], "ranks": [0, 5]}}):
        mstxkit.identify(rank=0, world_size=2)
        trains()

    assert states(run) == [("refused 2 of 2", "this run has the ranks 0 to 1")] * 2
    assert recorded(session) == []


def test_a_framework_that_carries_out_its_own_section_is_left_alone_and_named(
    run: Path, session: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mindspeed_rl", ModuleType("mindspeed_rl"))
    with mstxkit.capture(run, config=RL):
        trains()

    ((state, reason),) = states(run)
    assert (state, recorded(session)) == ("refused", [])
    assert reason.startswith("mindspeed_rl is active: it carries out its own section here")
    assert "takes_over: true" in reason


def test_told_to_take_over_it_records_and_the_framework_does_not(
    run: Path, session: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mindspeed_rl", ModuleType("mindspeed_rl"))
    with mstxkit.capture(run, config={**RL, "mstxkit": {"takes_over": True}}):
        trains()
        theirs = _takes_over.mindspeed_rl_made(lambda *_: "their profiler", "actor_update")
        of_verl = _takes_over.verl_made(lambda *_: "their profiler")
    afterwards = _takes_over.mindspeed_rl_made(lambda *_: "their profiler", "actor_update")

    assert recorded(session) == [("actor_update", 2)]
    assert (theirs, of_verl, afterwards) == (None, "their profiler", "their profiler")


def test_verl_that_is_taken_over_makes_profilers_that_record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSTXKIT_TAKES_OVER", "verl")
    profiler = _takes_over.verl_made(lambda *_: "their profiler", contents=None)

    assert [profiler.start(), profiler.step(), profiler.stop()] == [None] * 3
    assert _takes_over.verl_started(lambda *_: "started", "profiler") is None


CHILD = """
import json, os, sys
import mstxkit
from mstxkit import capturing
print(json.dumps([capturing._beside.settings.planned, "pydantic" in sys.modules, os.environ.get("MSTXKIT_LIGHT")]))
"""


def test_children_know_that_there_is_a_plan_without_reading_a_configuration(run: Path) -> None:
    config = {"mstxkit": {**OWN["mstxkit"], "light": "every 5 steps, 1 step"}}
    with mstxkit.capture(run, config=config):
        done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == [1, False, "every 5 steps, 1 step"]


def test_a_wrong_file_in_the_environment_is_logged_and_the_program_is_recorded(run: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("mstxkit: {enabled: maybe}\n")
    program = "import mstxkit\nwith mstxkit.stage('reward'): pass\nprint(mstxkit.status().on)"
    variables = {"MSTXKIT_RUN": str(run), "MSTXKIT_CONFIG": str(wrong)}

    done = subprocess.run(
        [sys.executable, "-c", program], env=lives.environment(**variables), capture_output=True, text=True, check=True
    )

    assert done.stdout == "True\n"
    assert "nothing is planned" in done.stderr and "wrong.yaml:1: mstxkit.enabled='maybe'" in done.stderr
