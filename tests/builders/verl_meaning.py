"""Any configuration of verl's roles, for hypothesis; and what verl 0.9.1 does with one, worked out apart from mstxkit.

Source: verl 0.9.1 trainer/config: `rollout.profiler` follows the actor's by `oc.select`, every other role has the
defaults of its dataclass; `utils/profiler/profile.py`: `all_ranks`, else `ranks`, else rank 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

ROLES = {
    "actor": ("actor_rollout_ref", "actor"), "ref": ("actor_rollout_ref", "ref"),
    "rollout": ("actor_rollout_ref", "rollout"), "critic": ("critic",),
}  # fmt: skip
STAGES = {
    "actor": {"actor_compute_log_prob", "actor_update"}, "ref": {"reference_compute_log_prob"},
    "rollout": {"actor_generate"}, "critic": {"critic_compute_values", "critic_update"},
}  # fmt: skip


class DoneInVerl(NamedTuple):
    """What verl does for one role that is on."""

    discrete: bool
    ranks: Any
    level: str
    sides: tuple[str, ...]
    memory: bool
    analysis: bool
    path: str


def given(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping that has any of these keys."""
    return st.fixed_dictionaries({}, optional=values)


npu = given(
    discrete=st.booleans(),
    contents=st.sampled_from([[], ["npu"], ["cpu"], ["npu", "cpu"], ["cpu", "npu", "memory"]]),
    level=st.sampled_from(["level_none", "level0", "level1"]),
    analysis=st.booleans(),
)
blocks = st.fixed_dictionaries(
    {"enable": st.booleans()},
    optional={
        "all_ranks": st.booleans(),
        "ranks": st.sampled_from([[], [0], [1, 3]]),
        "save_path": st.sampled_from(["outputs/profile", "/data/role"]),
        "tool_config": st.one_of(st.just({}), st.fixed_dictionaries({"npu": npu})),
    },
)
roles = st.fixed_dictionaries({}, optional=dict.fromkeys(ROLES, blocks))
whole = st.fixed_dictionaries(
    {"steps": st.sampled_from([[2], [2, 3, 7], None])},
    optional={"tool": st.sampled_from(["npu", "npu", None]), "save_path": st.just("/data/all")},
)


def tree_of(chosen: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """The values of a YAML with these blocks."""
    tree: dict[str, Any] = {"global_profiler": top}
    for name, block in chosen.items():
        below = tree
        for key in ROLES[name]:
            below = below.setdefault(key, {})
        below["profiler"] = block
    return tree


def done(tree: dict[str, Any]) -> dict[str, DoneInVerl]:
    """What verl does, by role: of those that are on."""
    top = tree["global_profiler"]
    if top.get("tool") != "npu" or not top.get("steps"):
        return {}
    actor = _block(tree, "actor")
    found = {}
    for name in ROLES:
        own = _block(tree, name)
        base = actor if name == "rollout" else {}
        if own.get("enable", base.get("enable", False)):
            found[name] = _done(own, base, top.get("save_path", "outputs/profile"))
    return found


def _block(tree: dict[str, Any], name: str) -> dict[str, Any]:
    below: Any = tree
    for key in (*ROLES[name], "profiler"):
        below = below.get(key, {})
    return dict(below)


def _done(own: dict[str, Any], base: dict[str, Any], path: str) -> DoneInVerl:
    block = {**base, **own}
    tool = {**base.get("tool_config", {}).get("npu", {}), **own.get("tool_config", {}).get("npu", {})}
    contents = tool.get("contents", [])
    return DoneInVerl(
        discrete=tool.get("discrete", False),
        ranks="all" if block.get("all_ranks") else tuple(block.get("ranks") or (0,)),
        level=tool.get("level", "level0").removeprefix("level_"),
        sides=("cpu", "npu") if "npu" in contents else ("cpu",),
        memory="memory" in contents,
        analysis=tool.get("analysis", True),
        path=own.get("save_path", path),
    )
