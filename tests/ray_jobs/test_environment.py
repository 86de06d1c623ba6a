"""What is added to a job's runtime environment: pure, so without Ray."""

from __future__ import annotations

import json
import pickle

import pytest

from mstxkit.bootstrap import ray_environment
from mstxkit.bootstrap.ray_environment import NEXT_HOOK, SETUP

OURS = {"MSTXKIT_RUN": "/runs/1", "MSTXKIT_AUTOPATCH": "verl"}
FIELD, TAKEN = "worker_process_setup_hook", "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"


def test_nothing_is_handed_on_while_nothing_is_on() -> None:
    assert ray_environment.pick_variables({"PATH": "/bin", "MSTXKIT_NATIVE": "0"}) == {}


def test_settings_are_handed_on_but_not_what_this_process_alone_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    given = {"MSTXKIT_RUN": "runs/1", "MSTXKIT_NATIVE": "0", "MSTXKIT_ROLE": "driver", NEXT_HOOK: "a.b", "HOME": "/"}

    assert ray_environment.pick_variables(given) == {"MSTXKIT_RUN": "/runs/1", "MSTXKIT_NATIVE": "0"}


@pytest.mark.parametrize("theirs", [None, {}, {"env_vars": None}])
def test_without_an_environment_of_the_callers_ours_is_all(theirs: dict[str, object] | None) -> None:
    assert ray_environment.compose_environment(theirs, OURS).environment == {FIELD: SETUP, "env_vars": OURS}


def test_what_the_caller_gave_is_kept_and_wins_and_is_not_changed() -> None:
    theirs = {"pip": ["x"], "env_vars": {"MSTXKIT_RUN": "/elsewhere", "A": "1"}}
    before = json.dumps(theirs)

    made = ray_environment.compose_environment(theirs, OURS).environment

    assert made["pip"] == ["x"]
    assert made["env_vars"] == {"MSTXKIT_RUN": "/elsewhere", "MSTXKIT_AUTOPATCH": "verl", "A": "1"}
    assert json.dumps(theirs) == before


def test_a_hook_by_path_runs_after_ours() -> None:
    made = ray_environment.compose_environment({FIELD: "their.hook"}, OURS).environment

    assert (made[FIELD], made["env_vars"][NEXT_HOOK]) == (SETUP, "their.hook")


def test_our_own_hook_is_not_composed_with_itself() -> None:
    assert NEXT_HOOK not in ray_environment.compose_environment({FIELD: SETUP}, OURS).environment["env_vars"]


def test_a_hook_that_ray_has_taken_over_runs_after_ours_too() -> None:
    """Beside that variable Ray 2.42 refuses the field."""
    made = ray_environment.compose_environment(
        {FIELD: "their.hook", "env_vars": {TAKEN: "their.hook"}}, OURS
    ).environment

    assert FIELD not in made
    assert (made["env_vars"][TAKEN], made["env_vars"][NEXT_HOOK]) == (SETUP, "their.hook")


def test_a_function_as_hook_runs_after_ours_and_its_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("mstxkit.bootstrap.ray.setup", lambda: calls.append("ours"))

    def theirs() -> None:
        calls.append("theirs")
        raise RuntimeError

    hook = ray_environment.compose_environment({FIELD: theirs}, OURS).environment[FIELD]
    with pytest.raises(RuntimeError):
        hook()

    assert calls == ["ours", "theirs"]
    assert hook.__name__ == "theirs"


def test_a_function_as_hook_is_pickled_by_value() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")

    made = pickle.loads(cloudpickle.dumps(ray_environment.setup_then(len)))

    assert made.__closure__[0].cell_contents is len


def test_what_is_no_hook_is_left_for_ray_to_refuse() -> None:
    assert ray_environment.compose_environment({FIELD: 5}, OURS).environment[FIELD] == 5


@pytest.mark.parametrize("field", ["conda", "container", "image_uri", "py_executable"])
def test_in_another_python_no_hook_can_end_a_worker(field: str) -> None:
    made = ray_environment.compose_environment({field: "x"}, OURS)

    assert made.environment == {field: "x", "env_vars": OURS}
    assert field in made.notes[0]


def test_under_ray_client_the_variable_is_set_on_which_ray_acts() -> None:
    """The field is left as it is: Ray does not act on it there, with us or without."""
    made = ray_environment.compose_environment({FIELD: "their.hook"}, OURS, is_client=True).environment

    assert made == {FIELD: "their.hook", "env_vars": {**OURS, TAKEN: SETUP}}


class TestSubmitted:
    """Under `ray job submit`: the job's environment arrives as text, and Ray merges the driver's with it."""

    @staticmethod
    def merged(
        job: dict[str, object], given: dict[str, object] | None, is_overriding: bool = False
    ) -> tuple[dict[str, object], dict[str, object] | None, tuple[str, ...]]:
        text, made = ray_environment.inject_into_job(json.dumps({"runtime_env": job}), given, OURS, is_overriding)
        return json.loads(text)["runtime_env"], made.environment, made.notes

    def test_ours_goes_into_the_jobs(self) -> None:
        given = {"pip": ["x"]}

        assert self.merged({}, given) == ({FIELD: SETUP, "env_vars": OURS}, given, ())

    def test_what_either_has_is_not_said_twice(self) -> None:
        job, given, _ = self.merged({"env_vars": {"A": "1"}}, {"env_vars": {"MSTXKIT_RUN": "/elsewhere"}})

        assert job["env_vars"] == {"A": "1", "MSTXKIT_AUTOPATCH": "verl"}
        assert given == {"env_vars": {"MSTXKIT_RUN": "/elsewhere"}}

    def test_a_hook_of_the_drivers_is_composed_there(self) -> None:
        job, given, _ = self.merged({"env_vars": {"A": "1"}}, {FIELD: "their.hook"})

        assert job == {"env_vars": {"A": "1"}}
        assert given == {FIELD: SETUP, "env_vars": {**OURS, NEXT_HOOK: "their.hook"}}

    def test_of_two_hooks_the_one_that_counts_is_composed(self) -> None:
        job, given, _ = self.merged({FIELD: "jobs.hook"}, {FIELD: "drivers.hook"}, is_overriding=True)

        assert job == {FIELD: "jobs.hook"}
        assert given is not None
        assert given["env_vars"] == {**OURS, NEXT_HOOK: "drivers.hook"}

    def test_another_python_in_either_is_seen(self) -> None:
        job, given, notes = self.merged({}, {"conda": "theirs"})

        assert (job, given) == ({"env_vars": OURS}, {"conda": "theirs"})
        assert "conda" in notes[0]
