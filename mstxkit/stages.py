"""Stage names: one canonical key per stage, the names that each system has for it, and whose work it is.

Source: MindSpeed-RL 2.0.0 to master 05a90d7 (`profiler_config` stages), verl 0.6.1 to 0.9.1 (`DistProfiler.annotate`
roles and `marked_timer` names of the trainers), MindSpeed-LLM 2.1.0 to master c77308a1, trl 1.x (metric names).
"""

from __future__ import annotations

from typing import NamedTuple


class Stage(NamedTuple):
    """One stage of a step.

    Args:
        key: Canonical key: what patches record and what everything else looks up.
        role: Whose work it is: actor, rollout, reference, critic, reward, trainer.
        aliases: Other names of the same stage, the frameworks' own among them.
    """

    key: str
    role: str
    aliases: tuple[str, ...] = ()


STAGES = (
    Stage(
        "actor_generate", "rollout",
        (
            "rollout_generate", "generate_sequences", "generate", "gen", "gen_max", "generate_async", "rollout",
            "vllm_generate", "sglang_generate", "trtllm_generate",
        ),
    ),
    Stage("actor_compute_log_prob", "actor", ("compute_log_prob", "old_log_prob", "actor_log_prob")),
    Stage(
        "reference_compute_log_prob", "reference",
        ("ref_compute_log_prob", "compute_ref_log_prob", "ref_log_prob", "ref"),
    ),
    Stage("critic_compute_values", "critic", ("compute_values", "values")),
    Stage("actor_update", "actor", ("update_actor", "update_policy", "actor_train")),
    Stage("critic_update", "critic", ("update_critic", "critic_train")),
    Stage("load_batch", "trainer", ("input", "data", "dataloader", "data_loading", "fetch_batch", "next_batch")),
    Stage("actor_image_embeds", "actor", ("compute_image_embeds",)),
    Stage("reward", "reward", ("compute_rm_score", "rule_reward", "reward_model", "reward_scores", "reward_score")),
    Stage("compute_advantage", "trainer", ("adv", "advantage")),
    Stage("compute_kl", "trainer", ("apply_kl_penalty", "kl_penalty")),
    Stage("dynamic_sampling", "trainer", ()),
    Stage(
        "weight_sync", "actor",
        ("update_weights", "sync_rollout_weights", "timing_s/param_sync", "resharding", "reshard"),
    ),
    Stage("train_step", "trainer", ("step", "training_step")),
    Stage("evaluate", "trainer", ("testing", "validate", "validation", "eval", "rollouter/validate_time")),
    Stage("save_checkpoint", "trainer", ("save_ckpt", "checkpoint")),
)  # fmt: skip

_NEARLY = 0.88  # of difflib: one letter in eight is another one
BY_KEY = {stage.key: stage for stage in STAGES}
_CANONICAL = {name: stage.key for stage in STAGES for name in (stage.key, *stage.aliases)}


def canonical_key(name: str) -> str:
    """The canonical key of a stage's name in any system; a name that no system has is its own key."""
    return _CANONICAL.get(name, name)


def is_known(name: str) -> bool:
    """Is this a canonical key, or an alias of one?"""
    return name in _CANONICAL


def meant_by(name: str) -> str | None:
    """The known name that this one is nearly like; None: it is known, or like none."""
    import difflib

    near = [] if is_known(name) else difflib.get_close_matches(name, _CANONICAL, 1, _NEARLY)
    return near[0] if near else None


def role_of(key: str | None) -> str | None:
    """Whose work a stage is; None outside any stage, and for one that no system has."""
    stage = BY_KEY.get(key or "")
    return None if stage is None else stage.role
