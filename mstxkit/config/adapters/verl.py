"""verl: `global_profiler` and the `profiler` block of each role, as YAML or as Hydra overrides on a command line.

Source: verl 0.6.1 to 0.9.1: utils/profiler/config.py, utils/profiler/mstx_profile.py, trainer/config. Keys that are
missing have the defaults of trainer/config (0.9.1): the rollout follows the actor, no other role does.
"""

from __future__ import annotations

import copy
from typing import Any, Mapping

from ...errors import Problem
from .. import hydra
from ..model import Config
from ..shell import require_text
from ..sources import Source, from_yaml
from . import Read, Reading, Written, _verl_roles, left_out, usual_metrics, yaml_of
from ._verl_roles import GLOBAL, HOOKS, ROLES, STAGE_NAMES, VerlRole, at_least, has_rollout

FLAVOUR = "verl"
DESCRIPTION = "verl YAML or Hydra overrides: global_profiler and the roles' profiler blocks"
why_lost = _verl_roles.why_lost

VLLM = {
    "DIR": "path", "WITH_STACK": "stacks", "RECORD_SHAPES": "shapes", "WITH_PROFILE_MEMORY": "memory",
    "WITH_FLOPS": "flops",
}  # fmt: skip
VLLM_PREFIX = "VLLM_TORCH_PROFILER_"

_CONTENTS = {"memory": "memory", "shapes": "shapes", "module": "modules", "stack": "stacks"}
_GLOBAL_KEYS = ("tool", "steps", "profile_continuous_steps", "save_path", *HOOKS, "global_tool_config", "_target_")
_ROOTS = tuple(dict.fromkeys((GLOBAL, *(path[0] for path, _ in ROLES.values()))))
_DOTTED = (f"{GLOBAL}.", *(".".join(path) + "." for path, _ in ROLES.values()))
_FIRST = ("actor", "ref", "critic", "reward_model", "rollout")  # whose settings are shown
_REASONS = {
    "window.steps": _verl_roles.LISTED,
    "window.counted_from": "steps are counted on after a resume",
    "window": "steps are listed; there is no schedule",
    "stages": "all together, or every stage of each role that is enabled (actor, ref, rollout, critic)",
    "replicas": "verl up to 0.9.0 takes the rollout's ranks for replicas, 0.9.1 for global ranks",
    "activities": "the host side is always recorded, from verl 0.9.1 on",
    "mstx": "mstx ranges are always recorded",
    **dict.fromkeys(("domains_include", "domains_exclude"), "the domain communication is always left out, no other"),
    "export": "always db (verl 0.6.1: text)",
    "analysis": "off or sync",
    "aic_metrics": "torch_npu's own: PipeUtilization at level1 and level2",
    "data_simplification": "always on",
    "sampling": "response tokens of the rollout alone can be chosen (profile_token_start, profile_token_end)",
}


def detect(source: Source) -> bool:
    """Is there a `global_profiler`, or a role's `profiler.tool_config`?"""
    if any(word.text.lstrip("+").startswith(_DOTTED) for word in source.words):
        return True
    paths = [path for path, _ in ROLES.values()]
    return GLOBAL in source.values or any(isinstance(source.at(*path, "tool_config"), Mapping) for path in paths)


def read(source: Source) -> Read:
    """What verl would do.
    Raises: ConfigError with all that is wrong in any role, enabled or not; an interpolation that points to nothing.
    """
    raw = hydra.from_overrides(source, _ROOTS) if source.words else source
    resolved = hydra.resolve_source(raw, [(GLOBAL,), *(path for path, _ in ROLES.values())])
    reading = Reading(resolved, (GLOBAL,))
    if "defaults" in source.values:
        reading.note("Hydra composes `defaults:`, which is not done here: give the resolved configuration (--cfg job)")
    reading.only(_GLOBAL_KEYS)
    tool = reading.choice("tool", "enabled", {name: name for name in (*_verl_roles.TOOLS, None)}, None)
    steps = _verl_roles.steps_of(reading, "steps")
    path = reading.text("save_path", "path", "outputs/profile")
    roles = _verl_roles.roles_of(reading, path)
    variables = _vllm_variables(reading, source)
    reading.stop_if_wrong()
    plain = reading.read(FLAVOUR, **_read_fields(reading, tool, steps, roles))
    extras = _find_extras(plain.config, raw, resolved, roles)
    return plain._replace(config=_with_extras(plain.config, {**variables, **extras}))


def _vllm_variables(reading: Reading, source: Source) -> dict[str, str]:
    variables = {name: word for name, word in source.variables.items() if name.startswith(VLLM_PREFIX)}
    for name, word in variables.items():
        short = name[len(VLLM_PREFIX) :]
        if short not in VLLM:
            allowed = tuple(VLLM_PREFIX + suffix for suffix in VLLM)
            reading.problems.append(Problem(source.name, word.line, name, None, "unknown variable", allowed))
        elif short != "DIR" and word.text not in ("0", "1"):
            reading.problems.append(Problem(source.name, word.line, name, word.text, "not a flag", ("0", "1")))
    return {name: require_text(word, source.name) for name, word in variables.items()}


def _read_fields(
    reading: Reading, tool: str | None, steps: tuple[int, ...], roles: dict[str, VerlRole]
) -> dict[str, Any]:
    enabled = [role for role in roles.values() if role.enable]
    base = next((roles[name] for name in _FIRST if roles[name].enable), roles["actor"])
    _verl_roles.note_surprises(reading, tool, steps, roles, base)
    names = [role.name for role in enabled if role.discrete] or [base.name]
    chosen = tuple(stage for name, (_, stages) in ROLES.items() if name in names for stage in stages)
    replicas = roles["rollout"].chosen if has_rollout(roles) else None
    start, end = roles["rollout"].tokens if has_rollout(roles) else (None, None)
    sampling = None if end is None else {"per": "decode_step", "skip": start or 0, "record": end - (start or 0)}
    return {
        "enabled": tool == "npu" and bool(steps) and bool(enabled), "stages": chosen if base.discrete else "all",
        "window": _verl_roles.window_of(steps),
        "stage_names": {key: name for key, name in STAGE_NAMES.items() if base.discrete and key in chosen},
        "ranks": base.chosen, "replicas": None if replicas == base.chosen == "all" else replicas,
        "level": base.level, "activities": base.activities, "mstx": True,
        "domains_exclude": ("communication",) if at_least(0, 7) else (),
        **{field: word in base.contents for word, field in _CONTENTS.items()},
        "aic_metrics": usual_metrics(base.level), "export": "db" if at_least(0, 7) else "text",
        "analysis": "sync" if base.analysis else "off", "path": base.save_path, "sampling": sampling,
    }  # fmt: skip


def _find_extras(config: Config, raw: Source, resolved: Source, roles: dict[str, VerlRole]) -> dict[str, Any]:
    """What `write` would not write again as it was, by dotted name: keys, and what roles do apart from each other."""
    enabled = [name for name, role in roles.items() if role.enable]
    kept = {"roles": enabled} if config.stages == "all" and enabled != _roles_of(config) else {}
    tree = _build_tree(_with_extras(config, kept))
    again = dict(_list_leaves(tree, ()))
    own = [(path, value) for path, value in _list_leaves(resolved.values, ()) if path[-1] != "_target_"]
    differing = [(path, value) for path, value in own if path not in again or again[path] != value]
    kept.update({".".join(path): value for path, value in differing if "${" not in str(raw.at(*path))})
    reading = Reading(Source("", _kept_in(tree, kept)), (GLOBAL,))
    again_roles = _verl_roles.roles_of(reading, reading.text("save_path", "path", "outputs/profile"))
    return {**kept, **_verl_roles.find_differences(roles, again_roles)}


def _kept_in(tree: dict[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    whole = copy.deepcopy(tree)
    for name, value in kept.items():
        if "." in name:
            hydra.put_value(whole, name.split("."), value)
    return whole


def _with_extras(config: Config, extras: dict[str, Any]) -> Config:
    return config.model_copy(update={"extras": {FLAVOUR: extras} if extras else {}})


def _list_leaves(values: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    if not isinstance(values, Mapping):
        return [(path, values)]
    return [leaf for key, value in values.items() for leaf in _list_leaves(value, (*path, str(key)))]


def write(config: Config) -> Written:
    """`global_profiler` and all roles, every key given; what vLLM reads from its environment as a comment.

    What was read in a spelling of its own (`ranks: []`), and what roles have apart, is written so again, unless the
    configuration has changed and would say something else with it.
    """
    kept = {name: value for name, value in config.extras.get(FLAVOUR, {}).items() if "." in name}
    written = _write_config(config, kept)
    if not written.lost:
        return written
    generated = {".".join(path) for path, _ in _list_leaves(_build_tree(config), ())}
    for name in [name for name in kept if name in generated]:
        fewer = {other: value for other, value in kept.items() if other != name}
        without = _write_config(config, fewer)
        kept, written = (fewer, without) if len(without.lost) < len(written.lost) else (kept, written)
    anew = _write_config(config, {name: value for name, value in kept.items() if name not in generated})
    return written if len(written.lost) <= len(anew.lost) else anew


def _write_config(config: Config, kept: Mapping[str, Any]) -> Written:
    text = yaml_of(_kept_in(_build_tree(config), kept))
    if config.stages != "all" and "actor_generate" in config.stages:
        lines = ["# In the environment of a vLLM engine:"]
        for name, field in ((VLLM_PREFIX + short, field) for short, field in VLLM.items()):
            value = (config.path or "outputs/profile") if field == "path" else int(getattr(config, field))
            lines.append(f"#   export {name}={config.extras.get(FLAVOUR, {}).get(name, value)}")
        text = "\n".join([*lines, text])
    return Written(text, left_out(config, read(from_yaml(text, "")).config, FLAVOUR, _REASONS))


def _build_tree(config: Config) -> dict[str, Any]:
    steps = _verl_roles.steps_listed(config.window)
    tool, save_path = "npu" if config.enabled else None, config.path or "outputs/profile"
    tree: dict[str, Any] = {GLOBAL: {"tool": tool, "steps": steps, "save_path": save_path}}
    wanted = _roles_of(config)
    for name, (path, _) in ROLES.items():
        if name in wanted or name != "reward_model":
            hydra.put_value(tree, path, _write_block(config, name, name in wanted))
    return tree


def _roles_of(config: Config) -> list[str]:
    """Roles that are on: those of its stages; for all of them every one that trains, or those that were read."""
    kept = config.extras.get(FLAVOUR, {}).get("roles")
    if config.stages == "all":
        if kept is None or (not kept and config.enabled):
            return ["actor", "ref", "critic"]
        return list(kept)
    has_reward_model = config.stage_names.get("reward") == STAGE_NAMES["reward"]  # else nobody has read it from verl
    chosen = [name for name, (_, stages) in ROLES.items() if set(stages) & set(config.stages)]
    return [name for name in chosen if name != "reward_model" or has_reward_model]


def _write_block(config: Config, role: str, is_on: bool) -> dict[str, Any]:
    ranks = config.replicas if role == "rollout" and config.replicas is not None else config.ranks
    npu = {
        "discrete": config.stages != "all",
        "contents": [
            *reversed(config.activities),
            *(word for word, field in _CONTENTS.items() if getattr(config, field)),
        ],
        "level": _verl_roles.OWN_LEVELS[config.level],
        "analysis": config.analysis != "off",
    }
    if role == "rollout" and config.sampling is not None and config.sampling.per == "decode_step":
        start = config.sampling.skip
        npu.update(profile_token_start=start, profile_token_end=start + config.sampling.record)
    listed = [] if ranks == "all" else list(ranks)
    return {"enable": is_on, "all_ranks": ranks == "all", "ranks": listed, "tool_config": {"npu": npu}}
