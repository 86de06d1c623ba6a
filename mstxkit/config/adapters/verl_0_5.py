"""verl 0.5 on an NPU: `trainer.profile_steps`, `trainer.npu_profile.options` and `actor_rollout_ref.profiler`.

Source: verl 0.5.0: trainer/config/ppo_trainer.yaml, trainer/config/npu_profile/npu_profile.yaml (defaults),
utils/profiler/mstx_profile.py (what is recorded), trainer/ppo/ray_trainer.py:844-863 (critic and reward model get no
options, so they record nothing). verl 0.4 has the same keys, but records on CUDA only.
"""

from __future__ import annotations

from typing import Any, Mapping

from .. import hydra
from ..model import Config
from ..sources import Source, from_yaml
from . import IN_WORKERS, LEVELS, Read, Reading, Written, left_out, sides_of, usual_metrics, yaml_of
from ._verl_roles import LISTED, OWN_LEVELS, STAGE_NAMES, steps_listed, steps_of, window_of

FLAVOUR = "verl_0_5"
DESCRIPTION = "verl 0.5 and before: trainer.profile_steps, trainer.npu_profile and actor_rollout_ref.profiler"

TRAINER, OPTIONS, RANKS = ("trainer",), ("trainer", "npu_profile", "options"), ("actor_rollout_ref", "profiler")
STAGES = ("actor_compute_log_prob", "actor_update", "reference_compute_log_prob", "actor_generate")
OWN_PATH = "./profiler_data"
_FLAGS = {"with_memory": "memory", "record_shapes": "shapes", "with_module": "modules", "with_stack": "stacks"}
_KEYS = ("save_path", "level", *_FLAGS, "with_npu", "with_cpu", "analysis")
_DOTTED = ("trainer.profile_steps=", "trainer.npu_profile.", "actor_rollout_ref.profiler.")
_IGNORED = (("critic", "profiler"), ("reward_model", "profiler"))
_REASONS = {
    **IN_WORKERS,
    "enabled": "nothing is recorded without profile_steps and ranks",
    "window.first_step": "profile_steps: null is how it is switched off",
    "window.steps": f"{LISTED}; null is off",
    "window.counted_from": "steps are counted on after a resume",
    "window": "steps are listed; there is no schedule",
    "stages": f"all together, or each of {', '.join(STAGES)}; verl 0.5 records no critic and no reward model",
    "mstx": "mstx ranges are always recorded",
    "export": "always text",
}


def detect(source: Source) -> bool:
    """Is there one of its three sections, or an override of one?"""
    if any(word.text.lstrip("+").startswith(_DOTTED) for word in source.words):
        return True
    trainer = source.at(*TRAINER)
    has_trainers = isinstance(trainer, Mapping) and not {"profile_steps", "npu_profile"}.isdisjoint(trainer)
    return has_trainers or isinstance(source.at(*RANKS), Mapping)


def read(source: Source) -> Read:
    """What verl 0.5 would do. Raises: ConfigError with all that is wrong in it."""
    roots = ("trainer", "actor_rollout_ref", "critic", "reward_model")
    raw = hydra.from_overrides(source, roots) if source.words else source
    resolved = hydra.resolve_source(raw, [("trainer", "profile_steps"), OPTIONS, RANKS, *_IGNORED])
    trainer, options, ranks = (Reading(resolved, section) for section in (TRAINER, OPTIONS, RANKS))
    options.only(_KEYS)
    ranks.only(("discrete", "all_ranks", "ranks", "_target_"))
    steps = steps_of(trainer, "profile_steps")
    chosen: Any = "all" if ranks.flag("all_ranks", "ranks", False) else None
    if chosen is None and ranks.values.get("ranks"):
        chosen = ranks.ranks("ranks", "ranks")
    level = options.choice("level", "level", LEVELS, "level1")
    fields: dict[str, Any] = {
        **options.flags(_FLAGS), "level": level, "activities": sides_of(options, "with"), "mstx": True,
        "aic_metrics": usual_metrics(level), "export": "text",
        "analysis": "sync" if options.flag("analysis", "analysis", True) else "off",
        "path": options.text("save_path", "path", OWN_PATH), "window": window_of(steps),
        "enabled": bool(steps) and chosen is not None, "ranks": "all" if chosen is None else chosen,
    }  # fmt: skip
    if ranks.flag("discrete", "stages", False):
        fields.update(stages=STAGES, stage_names={key: name for key, name in STAGE_NAMES.items() if key in STAGES})
    if steps and chosen is None:
        options.note("neither all_ranks nor ranks of actor_rollout_ref.profiler: verl 0.5 records nothing")
    if any(resolved.at(*section, key) for section in _IGNORED for key in ("all_ranks", "ranks")):
        options.note("critic and reward model: verl 0.5 records nothing of them on an NPU")
    options.take_over(trainer, ranks)
    return options.read(FLAVOUR, **fields)


def write(config: Config) -> Written:
    """The three sections, every key given."""
    options = {
        "save_path": config.path or OWN_PATH, "level": OWN_LEVELS[config.level],
        **{key: getattr(config, field) for key, field in _FLAGS.items()},
        **{f"with_{side}": side in config.activities for side in ("npu", "cpu")}, "analysis": config.analysis != "off",
    }  # fmt: skip
    ranks = [] if config.ranks == "all" else list(config.ranks)
    who = {"discrete": config.stages != "all", "all_ranks": config.ranks == "all", "ranks": ranks}
    listed = steps_listed(config.window) if config.enabled else None
    tree = {
        "trainer": {"profile_steps": listed, "npu_profile": {"options": options}},
        "actor_rollout_ref": {"profiler": who},
    }
    text = yaml_of(tree)
    return Written(text, left_out(config, read(from_yaml(text, "")).config, FLAVOUR, _REASONS))
