"""What goes into a job's runtime environment so that Ray's workers record and patch: the caller's own, with ours added.

Nothing of the caller's is changed, and nothing of it is lost: variables it sets win over ours, a set-up hook it names
runs after ours. Plain data in, plain data out: no Ray is needed.

Source: Ray 2.42.1 and 2.60.0, `ray/runtime_env/runtime_env.py` (fields and their conflicts),
`ray/_private/runtime_env/setup_hook.py` (string and callable hooks), `ray/_private/worker.py` (`init`, what
`ray job submit` injects).
"""

from __future__ import annotations

import copy
import json
import os
from importlib import import_module
from typing import Any, Callable, Mapping, NamedTuple

from ..host.environment import AUTOPATCH, RUN

SETUP = "mstxkit.bootstrap.ray.setup"
# Names the hook that runs after ours: a path, or Ray's reference to a function that it keeps in its own store.
NEXT_HOOK = "MSTXKIT_RAY_NEXT_HOOK"
INJECTED = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_FIELD, _VARIABLES = "worker_process_setup_hook", "env_vars"
# In here a hook arrives that has been taken over already, by the supervisor of a submitted job.
_TAKEN = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"
# A worker in another Python may lack mstxkit, and one whose hook cannot be imported is ended by Ray. Nor do the
# fields `container` and `image_uri` allow a hook beside them.
_ELSEWHERE = ("conda", "container", "image_uri", "py_executable")
# What says something of this process alone.
_OWN = ("MSTXKIT_ROLE", NEXT_HOOK)


class Composed(NamedTuple):
    """A runtime environment with ours added."""

    environment: Any  # of the caller's type
    notes: tuple[str, ...] = ()  # for the user: which workers are not reached, and what to do


def pick_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What a worker must find in its environment to do as this process does; {} while nothing is on here."""
    if not (environ.get(RUN) or environ.get(AUTOPATCH)):
        return {}
    passed_on = {name: value for name, value in environ.items() if name.startswith("MSTXKIT_") and name not in _OWN}
    if passed_on.get(RUN):
        passed_on[RUN] = os.path.abspath(passed_on[RUN])
    return passed_on


def compose_environment(theirs: Any, ours: Mapping[str, str], beside: Any = None, is_client: bool = False) -> Composed:
    """A job's runtime environment with these variables and our set-up hook.
    `theirs`: the caller's: a dict, a `RuntimeEnv`, or None. `beside`: another one that Ray will merge with it.
    `is_client`: is it for Ray Client? There Ray does not act on the field, only on the variable that it makes of it.
    """
    environment = {} if theirs is None else copy.copy(theirs)
    environment[_VARIABLES] = {**ours, **(environment.get(_VARIABLES) or {})}
    elsewhere = [field for field in _ELSEWHERE if environment.get(field) or (beside or {}).get(field)]
    if elsewhere:
        return Composed(environment, (_NOT_HOOKED.format(field=elsewhere[0]),))
    variables, hook = environment[_VARIABLES], environment.get(_FIELD)
    taken = variables.get(_TAKEN)
    before = hook if taken is None else taken
    after_ours = {NEXT_HOOK: before} if before and before != SETUP else {}
    if is_client:
        environment[_VARIABLES] = {_TAKEN: SETUP, **variables}
    elif taken is not None:  # Ray acts on the variable alone, and refuses the field beside it
        environment[_VARIABLES] = {**variables, _TAKEN: SETUP, **after_ours}
        environment.pop(_FIELD, None)
    elif callable(hook):
        environment[_FIELD] = setup_then(hook)
    elif hook is None or isinstance(hook, str):  # of anything else, Ray says itself that it is none
        environment[_VARIABLES] = {**variables, **after_ours}
        environment[_FIELD] = SETUP
    return Composed(environment)


_NOT_HOOKED = (
    "runtime_env has {field}: Ray's set-up hook is left out, because it would end every worker that lacks mstxkit; "
    "where mstxkit is installed there, MSTXKIT_RUN and MSTXKIT_AUTOPATCH, which are passed on, act by themselves"
)


def setup_then(hook: Callable[[], object]) -> Callable[[], object]:
    """A set-up hook that runs ours, then `hook`, whose failure is Ray's business as without us.

    Ray pickles it by value: ours is known by its name, as in the field of a runtime environment.
    """

    def setup_hook() -> object:
        module, _, name = SETUP.rpartition(".")
        getattr(import_module(module), name)()
        return hook()

    setup_hook.__name__ = getattr(hook, "__name__", "setup_hook")
    return setup_hook


def inject_into_job(text: str, environment: Any, ours: Mapping[str, str], is_overriding: bool) -> tuple[str, Composed]:
    """The same under `ray job submit`, whose own runtime environment Ray merges with the one given to `ray.init`.

    Ray refuses a field or variable that both have. So ours goes into one of them: where the hook is, else the job's.
    `text`: value of the variable `INJECTED`. `environment`: what the driver passed to `ray.init`. `is_overriding`: does
    the driver's win a conflict (RAY_OVERRIDE_JOB_RUNTIME_ENV=1)? Returns: The new value of the variable, and what to
    give to `ray.init`.
    """
    config = json.loads(text)
    job, driver = config.get("runtime_env") or {}, environment or {}
    held = {**(job.get(_VARIABLES) or {}), **(driver.get(_VARIABLES) or {})}
    missing = {name: value for name, value in ours.items() if name not in held}
    if driver.get(_FIELD) is not None and (is_overriding or job.get(_FIELD) is None):
        return text, compose_environment(environment, missing, beside=job)
    made = compose_environment(job, missing, beside=driver)
    return json.dumps({**config, "runtime_env": made.environment}), Composed(environment, made.notes)
