"""The roles of a verl configuration: the `profiler` block of each, with what it has by default or follows.

Source: verl 0.6.1 to 0.9.1: utils/profiler/config.py, utils/profiler/mstx_profile.py, trainer/config.
"""

from __future__ import annotations

import contextlib
import re
from contextvars import ContextVar
from typing import Any, Iterator, Mapping, NamedTuple

from ...errors import ConfigError
from ..model import Window
from . import LEVELS, Reading

_MEANT: ContextVar[str | None] = ContextVar("verl_version", default=None)

GLOBAL = "global_profiler"
SAVE_PATH = f"{GLOBAL}.save_path"
MOST_STEPS = 1000
LISTED = f"steps are listed one by one, up to {MOST_STEPS}"
TOOLS = ("nsys", "npu", "torch", "torch_memory", "precision_debugger")
OWN_LEVELS = {canonical: own for own, canonical in LEVELS.items()}
CONTENTS = ("npu", "cpu", "memory", "shapes", "module", "stack")
# Where a role's block is, and the stages that verl annotates for it: in discrete mode each is one recording.
ROLES = {
    "actor": (("actor_rollout_ref", "actor", "profiler"), ("actor_compute_log_prob", "actor_update")),
    "ref": (("actor_rollout_ref", "ref", "profiler"), ("reference_compute_log_prob",)),
    "rollout": (("actor_rollout_ref", "rollout", "profiler"), ("actor_generate",)),
    "critic": (("critic", "profiler"), ("critic_compute_values", "critic_update")),
    "reward_model": (("reward_model", "profiler"), ("reward",)),  # verl 0.7.0 and before
}
STAGE_NAMES = {
    "actor_generate": "rollout_generate", "reference_compute_log_prob": "ref_compute_log_prob",
    "critic_compute_values": "compute_values", "reward": "compute_rm_score",
}  # fmt: skip

HOOKS = ("relocate_results", "finish_hook_cmd", "finish_hook_all_ranks", "finish_hook_ranks")
_NPU = "tool_config.npu"
_ROLE_KEYS = (
    "tool", "enable", "all_ranks", "ranks", "save_path", *HOOKS, "tool_config", "global_tool_config", "_target_",
)  # fmt: skip
_NPU_KEYS = (
    "discrete", "contents", "level", "analysis", "profile_token_start", "profile_token_end", "name", "_target_",
)  # fmt: skip


class VerlRole(NamedTuple):
    """One role's block, with defaults."""

    name: str
    enable: bool = False
    all_ranks: bool = False
    ranks: tuple[int, ...] = ()
    save_path: str = "outputs/profile"
    discrete: bool = False
    contents: tuple[str, ...] = ()
    level: str = "level0"
    analysis: bool = True
    tokens: tuple[int | None, int | None] = (None, None)

    @property
    def chosen(self) -> Any:
        """Its ranks; without any, rank 0."""
        return "all" if self.all_ranks else self.ranks or (0,)

    @property
    def activities(self) -> tuple[str, ...]:
        """The sides that are recorded."""
        listed = tuple(name for name in ("cpu", "npu") if name in self.contents)
        if at_least(0, 9, 1):  # which always has the host side
            return ("cpu", "npu") if "npu" in listed else ("cpu",)
        return listed or ("cpu", "npu")

    def meaning(self) -> dict[str, tuple[Any, dict[str, Any]]]:
        """What it does, by aspect, each with the keys below its block that say so."""
        flags = frozenset(self.contents) - {"cpu", "npu"}
        start, end = self.tokens
        return {
            "enable": (self.enable, {"enable": self.enable}),
            "ranks": (self.chosen, {"all_ranks": self.all_ranks, "ranks": list(self.ranks)}),
            "save_path": (self.save_path, {"save_path": self.save_path}),
            "contents": ((self.activities, flags), {f"{_NPU}.contents": list(self.contents)}),
            "level": (self.level, {f"{_NPU}.level": OWN_LEVELS[self.level]}),
            **{key: (getattr(self, key), {f"{_NPU}.{key}": getattr(self, key)}) for key in ("discrete", "analysis")},
            "tokens": ((start, end), {f"{_NPU}.profile_token_start": start, f"{_NPU}.profile_token_end": end}),
        }  # fmt: skip


def roles_of(reading: Reading, path: str) -> dict[str, VerlRole]:
    """Every role by its name, with what it has by default in the verl that is meant, or follows."""
    default = VerlRole("actor", save_path=path, level="level0" if at_least(0, 7) else "level1")
    actor = _read_role(reading, default)
    followed = {"rollout": actor._replace(save_path=path, tokens=(None, None))}
    others = {name: followed.get(name, default)._replace(name=name) for name in ROLES if name != "actor"}
    return {"actor": actor, **{name: _read_role(reading, other) for name, other in others.items()}}


def _read_role(reading: Reading, default: VerlRole) -> VerlRole:
    section = ROLES[default.name][0]
    role, npu = Reading(reading.source, section), Reading(reading.source, (*section, "tool_config", "npu"))
    role.only(_ROLE_KEYS)
    npu.only(_NPU_KEYS)
    if isinstance(role.values.get("tool_config"), Mapping):
        tools = Reading(reading.source, (*section, "tool_config"))
        tools.only((*TOOLS, "_target_"))
        role.problems += tools.problems
    start, end = (
        None if npu.values.get(key) is None else npu.number(key, "sampling", 0, least=0)
        for key in ("profile_token_start", "profile_token_end")
    )
    if start is not None and end is not None and end <= start:
        npu.wrong("profile_token_end", f"must be more than profile_token_start, {start}", end)
    verl_role = VerlRole(
        default.name, role.flag("enable", "enabled", default.enable),
        role.flag("all_ranks", "ranks", default.all_ranks),
        () if role.values.get("ranks", default.ranks) in (None, []) else role.ranks("ranks", "ranks", default.ranks),
        role.text("save_path", "path", default.save_path), npu.flag("discrete", "stages", default.discrete),
        npu.items("contents", "activities", {name: name for name in CONTENTS}, default.contents),
        npu.choice("level", "level", LEVELS, default.level), npu.flag("analysis", "analysis", default.analysis),
        (start, end),
    )  # fmt: skip
    reading.problems += [*role.problems, *npu.problems]
    if default.name == "rollout":
        reading.places.update({"replicas": role.places["ranks"]} if "ranks" in role.places else {})
    elif default.name == "actor" or verl_role.enable:
        reading.places = {**role.places, **npu.places, **reading.places}
    return verl_role


def steps_of(reading: Reading, key: str) -> tuple[int, ...]:
    """A list of steps from 1; null is none."""
    value = reading.get(key, "window.first_step")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(step) is int and step >= 1 for step in value):
        return reading.refuse((), key, "null or a list of steps is needed, counted from 1: [2, 4]", value)
    return tuple(sorted(set(value)))


def steps_listed(window: Window) -> list[int]:
    """The steps of a window, one by one: what `steps_of` reads."""
    steps = range(window.first_step, window.first_step + min(window.steps or 1, MOST_STEPS))
    return [*steps, *window.more_steps]


def window_of(steps: tuple[int, ...]) -> dict[str, Any]:
    """The window of a list of steps, and those after it."""
    if not steps:
        return {}
    count = next((n for n in range(1, len(steps)) if steps[n] != steps[0] + n), len(steps))
    return {"first_step": steps[0], "steps": count, "more_steps": steps[count:]}


@contextlib.contextmanager
def meant_version(version: str | None) -> Iterator[None]:
    """Read and write as this version of verl does: `0.7.1`. Raises: ConfigError where it is none."""
    if version is not None and not re.fullmatch(r"[0-9]+(\.[0-9]+)+\S*", version):
        raise ConfigError(f"verl version {version!r}: numbers are needed, as in 0.5.0 or 0.9.1")
    before = _MEANT.set(version)
    try:
        yield
    finally:
        _MEANT.reset(before)


def at_least(*numbers: int) -> bool:
    """Is the verl of `meant_version` this one or later? Without: the one installed; where none is, the newest."""
    version = _MEANT.get() or installed_version()
    return version is None or [int(part) for part in version.split(".")[:3] if part.isdecimal()] >= list(numbers)


def installed_version() -> str | None:
    """verl's in this environment; None without one."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("verl")
    except PackageNotFoundError:
        return None


def note_surprises(
    reading: Reading, tool: str | None, steps: tuple[int, ...], roles: dict[str, VerlRole], base: VerlRole
) -> None:
    """Note what verl does that its documents do not say."""
    if steps and base.enable and tool is None:
        reading.note("global_profiler.tool is not set: verl profiles nothing; it needs tool: npu")
    elif steps and tool not in (None, "npu"):
        reading.note(f"global_profiler.tool is {tool}: only npu is read here")
    if base.enable and not base.all_ranks and not base.ranks:
        reading.note(f"{base.name}: neither all_ranks nor ranks: rank 0 is profiled (verl 0.6.1: none)")
    if roles["actor"].enable and not roles["ref"].enable:
        reading.note("ref does not follow the actor: its enable is false unless it is set")
    if base.enable and "npu" not in base.contents:
        reading.note("contents without npu: verl 0.9.1 records the host alone, 0.9.0 and before take [] for both")
    elif base.enable and "cpu" not in base.contents and at_least(0, 9, 1):
        reading.note("verl 0.9.1 and later record the host too, whatever contents says; 0.9.0 and before do not")
    if roles["rollout"].enable and not roles["rollout"].discrete:
        reading.note("rollout: the inference engine is profiled with discrete: true only (Agent Loop)")
    if has_rollout(roles):
        reading.note(
            "rollout: ranks are replicas of the engine up to verl 0.9.0, global ranks in 0.9.1; up to 0.7.0 vLLM takes "
            "its own VLLM_TORCH_PROFILER_DIR and ignores save_path and contents; vllm-ascend always ignores the level"
        )
    whole = [name for name, role in roles.items() if role.enable and not role.discrete and name != "rollout"]
    if base.discrete and whole:
        reading.note(
            f"{', '.join(whole)}: discrete is false, so whole steps are recorded beside the stages of {base.name}; "
            "where they share a process, the end of a stage's recording also ends the other"
        )
    differing = ", ".join(name for name, role in roles.items() if role.enable and role[3:9] != base[3:9])
    if differing:
        reading.note(f"{differing}: other settings than {base.name}, whose are shown; they are kept in extras")


def find_differences(roles: Mapping[str, VerlRole], others: Mapping[str, VerlRole]) -> dict[str, Any]:
    """By dotted name, what these roles do otherwise than others of the same names; of roles that are off only that."""
    kept: dict[str, Any] = {}
    for name, role in roles.items():
        meant, other = role.meaning(), others[name].meaning()
        for aspect in meant if role.enable else ("enable",):
            if meant[aspect][0] != other[aspect][0]:
                kept.update({".".join((*ROLES[name][0], key)): value for key, value in meant[aspect][1].items()})
    return kept


def why_lost(name: str, value: Any) -> str:
    """Why another system cannot say what verl has under this name."""
    if name == "roles":
        return f"verl records the processes of these roles alone, elsewhere ranks decide: {', '.join(value) or 'none'}"
    if name == SAVE_PATH:
        return f"in verl roles without a save_path of their own write to {value}; elsewhere one path holds for all"
    role = next((role for role, (path, _) in ROLES.items() if name.startswith(".".join(path) + ".")), None)
    if role is None:
        return "verl alone has it"
    if name.endswith(".enable"):
        stages = ", ".join(ROLES[role][1])
        also = f"verl also records {role}, by settings of its own: nothing is said of it here ({stages})"
        return also if value else f"in verl {role} is off ({stages})"
    return f"verl has it for {role} alone, whatever the other roles have; elsewhere one value holds for all"


def has_rollout(roles: dict[str, VerlRole]) -> bool:
    """Is the inference engine profiled?"""
    return roles["rollout"].enable and roles["rollout"].discrete
