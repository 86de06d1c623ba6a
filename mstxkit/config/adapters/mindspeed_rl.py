"""MindSpeed-RL: `profiler_config.integrated` of a training YAML, or a worker's own `ProfilerConfig`.

Source: MindSpeed-RL 05a90d7, config_cls/mindstudio_config.py:6-56, utils/utils.py:518-638. mstxkit's own keys must not
stand inside that section: an unknown key there raises ValueError.
"""

from __future__ import annotations

from typing import Any, Mapping

from ... import stages
from .. import hydra
from ..model import Config
from ..sources import Source, from_yaml
from . import EXPORTS, IN_WORKERS, LEVELS, Read, Reading, Written, left_out, sides_of, usual_metrics, yaml_of

FLAVOUR = "mindspeed_rl"
DESCRIPTION = "MindSpeed-RL training YAML: profiler_config.integrated"

SECTION = ("profiler_config", "integrated")
# The stages that call profiler_start; a name that is not among them profiles nothing, without a word.
STAGES = (
    "actor_generate", "actor_compute_log_prob", "reference_compute_log_prob", "actor_update", "critic_compute_values",
    "critic_update", "actor_image_embeds",
)  # fmt: skip
KEYS = (
    "profile", "mstx", "stage", "profile_save_path", "profile_export_type", "profile_step_start", "profile_step_end",
    "profile_level", "profile_with_memory", "profile_record_shapes", "profile_with_cpu", "profile_with_npu",
    "profile_with_module", "profile_analysis", "profile_ranks", "role",
)  # fmt: skip
_FLAGS = {
    "profile": "enabled", "profile_with_memory": "memory", "profile_record_shapes": "shapes",
    "profile_with_module": "modules",
}  # fmt: skip
_REASONS = {
    **IN_WORKERS,
    "enabled": "nothing of what is to be recorded can be said",
    "window.steps": "a window has an end",
    "window.counted_from": "steps are counted from the start of the process, also after a resume",
    "window": "one window of steps in a row, without warm-up",
    "stages": f"stages are {', '.join(STAGES)}",
    "stacks": "profile_with_module records stacks by module",
    "export": "text or db, not both",
    "mstx": "level none always records mstx ranges",
}


def detect(source: Source) -> bool:
    """Is there a `profiler_config.integrated`, an override of it, or an object or mapping with its fields?"""
    is_overridden = any(word.text.lstrip("+").startswith(".".join(SECTION) + ".") for word in source.words)
    return is_overridden or isinstance(source.at(*SECTION), Mapping) or "profile_with_npu" in source.values


def read(source: Source) -> Read:
    """What MindSpeed-RL would do.
    Raises: ConfigError with all that is wrong, also what MindSpeed-RL takes silently and then profiles nothing, or
    something else, with: a stage or ranks that match nothing, `profile: "false"`, a window that ends before it starts.
    """
    source = hydra.from_overrides(source, SECTION[:1]) if source.words else source
    section = () if source.at(*SECTION) is None else SECTION  # or the keys are at the top of an object
    if section:
        source = hydra.resolve_source(source, [SECTION, ("megatron_training", "stage")])
    source = _with_underscores(source, section)
    reading = Reading(source, section)
    reading.only(KEYS)
    fields = _read_fields(reading)
    first = reading.number("profile_step_start", "window.first_step", 1, least=1)
    end = reading.number("profile_step_end", "window.steps", 2)
    if end <= first and not reading.problems:
        key = "profile_step_end" if "profile_step_end" in reading.values else "profile_step_start"
        reading.wrong(key, f"the window is empty: it must end after step {first}, where it starts", end)
    fields["window"] = {"first_step": first, "steps": max(end - first, 1), "counted_from": "process"}
    if fields["stages"] == "all" and fields["enabled"]:
        if source.at("megatron_training", "stage") == "ray_ppo":
            why = "PPO has two workers on each NPU, which cannot both be profiled: name a stage"
            reading.wrong("stage", why, "all", STAGES)
        if first == 1:
            reading.note(
                "stage all from step 1 on begins inside the worker's initialisation: the models' loading is in it"
            )
    role = reading.text("role", "extras", "integrated")
    return reading.read(FLAVOUR, {} if role == "integrated" else {"role": role}, **fields)


def _read_fields(reading: Reading) -> dict[str, Any]:
    level = reading.choice("profile_level", "level", LEVELS, "level0")
    mstx = reading.flag("mstx", "mstx", False)
    if level == "none" and not mstx:
        reading.note("level_none turns mstx on in torch_npu, whatever mstx says")
    return {
        **reading.flags(_FLAGS), "level": level, "mstx": mstx or level == "none", "aic_metrics": usual_metrics(level),
        "stages": _read_stages(reading), "ranks": _read_ranks(reading), "activities": sides_of(reading, "profile_with"),
        "export": reading.choice("profile_export_type", "export", EXPORTS, "text"),
        "analysis": "sync" if reading.flag("profile_analysis", "analysis", False) else "off",
        "path": reading.text("profile_save_path", "path", ""),
    }  # fmt: skip


def _read_stages(reading: Reading) -> Any:
    value = reading.get("stage", "stages", "all")
    if value == "all":
        return "all"
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names:
        return reading.refuse("all", "stage", "all, a stage or a list of stages is needed", value, ("all", *STAGES))
    for name in (name for name in names if name not in STAGES):
        why = "all stands alone, not in a list" if name == "all" else "not one of its stages: nothing would be profiled"
        reading.wrong("stage", why, name, () if name == "all" else ("all", *STAGES))
    return tuple(dict.fromkeys(stages.canonical_key(str(name)) for name in names))


def _read_ranks(reading: Reading) -> Any:
    value = reading.get("profile_ranks", "ranks", "all")
    if value == "all":
        return "all"
    if isinstance(value, (list, tuple)):
        return reading.ranks("profile_ranks", "ranks")
    becomes = ": MindSpeed-RL would profile rank 0 alone" if isinstance(value, int) else ""
    return reading.refuse("all", "profile_ranks", f"all or a list is needed, [0, 1]{becomes}", value)


def _with_underscores(source: Source, section: tuple[str, ...]) -> Source:
    """The same with `profile-level` called profile_level, as MindSpeed-RL's `update()` has it."""
    content = source.at(*section)
    if not isinstance(content, Mapping) or not any("-" in str(key) for key in content):
        return source
    values: dict[str, Any] = {str(key).replace("-", "_"): value for key, value in content.items()}
    lines = {
        (*path[:-1], str(path[-1]).replace("-", "_")) if path[:-1] == section else path: line
        for path, line in source.lines.items()
    }
    for name in reversed(section):
        values = {name: values}
    return Source(source.name, {**source.values, **values}, lines)


def write(config: Config) -> Written:
    """`profiler_config.integrated` with every key given."""
    names = ["all"] if config.stages == "all" else [key for key in config.stages if key in STAGES]
    first = config.window.first_step
    values = {
        **{key: getattr(config, field) for key, field in _FLAGS.items()},
        "profile": config.enabled and bool(names), "mstx": config.mstx,
        "stage": names if len(names) > 1 else (*names, "all")[0], "profile_save_path": config.path,
        "profile_export_type": "text" if config.export == "text" else "db",
        "profile_step_start": first, "profile_step_end": first + (config.window.steps or 1),
        "profile_level": {canonical: own for own, canonical in LEVELS.items()}[config.level],
        "profile_with_cpu": "cpu" in config.activities, "profile_with_npu": "npu" in config.activities,
        "profile_analysis": config.analysis != "off",
        "profile_ranks": "all" if config.ranks == "all" else list(config.ranks),
    }  # fmt: skip
    section = {key: values[key] for key in KEYS if key in values}
    text = yaml_of({"profiler_config": {"integrated": {**section, **config.extras.get(FLAVOUR, {})}}})
    return Written(text, left_out(config, read(from_yaml(text, "")).config, FLAVOUR, _REASONS))
