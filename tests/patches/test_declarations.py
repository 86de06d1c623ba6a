"""What holds for the declarations of every framework, whatever is installed."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest
from builders import recorded_surfaces

from mstxkit import stages
from mstxkit.patching import expressions, registry
from mstxkit.patching.declare import RANGE, VALUE, Patch

RECORDED = {
    "mindspeed_llm": ["2.1.0", "2.2.0", "2.3.0", "26.1.0", "master-c77308a1"],
    "mindspeed_rl": ["2.0.0", "2.1.0", "2.2.0", "2.3.0", "master-05a90d7"],
    "mindspore": ["2.10.0"],
    "openrlhf": ["0.11.2"],
    "sglang": ["0.5.11", "0.5.23", "0.5.4.post1", "0.5.9"],
    "vllm": ["0.11.0", "0.23.0", "0.32.0"],
    "vllm_ascend": ["0.11.0", "0.13.0", "0.18.0", "0.23.0"],
}
BY_CODE = ("mindspore", "vllm", "vllm_ascend")  # some attributes of these come from functions
each_patch = pytest.mark.parametrize(
    "patch", list(map(registry.load_patch, registry.list_frameworks())), ids=registry.list_frameworks()
)


@each_patch
def test_the_patch_of_a_framework_reaches_into_it(patch: Patch) -> None:
    assert patch.versions
    assert any(target.module.split(".")[0] == patch.framework for target in patch.targets)


@each_patch
def test_every_target_is_declared_once(patch: Patch) -> None:
    assert [path for path, count in Counter(target.path for target in patch.targets).items() if count > 1] == []


@pytest.mark.parametrize("framework", RECORDED)
def test_the_recorded_versions_are_those_that_the_targets_were_read_from(framework: str) -> None:
    assert recorded_surfaces.versions(framework) == RECORDED[framework]


@pytest.mark.parametrize("framework", ["mindspeed_llm", "mindspeed_rl", "openrlhf"])
def test_every_target_is_in_a_recorded_version(framework: str) -> None:
    targets = registry.load_patch(framework).targets
    found = {target.path for _, target, _ in recorded_surfaces.holders(targets, framework)}

    assert {target.path for target in targets} - found == set()


@pytest.mark.parametrize("framework", RECORDED)
def test_every_expression_fits_the_function_in_every_version_that_holds_it(framework: str) -> None:
    for _, target, function in recorded_surfaces.holders(registry.load_patch(framework).targets, framework):
        is_code = framework in BY_CODE and callable(target.attributes)
        for text in () if is_code else recorded_surfaces.expressions(target):
            expressions.compile_expression(text, function.signature())  # raises where it names no parameter


@pytest.mark.parametrize("framework", ["mindspore", "openrlhf"])
def test_the_only_recorded_version_is_that_which_the_patch_is_for(framework: str) -> None:
    assert RECORDED[framework] == [registry.load_patch(framework).versions]


@each_patch
def test_only_stages_that_are_known_are_named(patch: Patch) -> None:
    assert {target.stage for target in patch.targets} - {None} <= stages.BY_KEY.keys()


@each_patch
def test_expressions_are_well_formed(patch: Patch) -> None:
    for target in patch.targets:
        texts = [] if callable(target.attributes) else list(target.attributes.values())
        steps = [step for step in (target.step, target.step_after) if isinstance(step, str)]
        for text in [*texts, *steps]:
            expressions.check(text)  # raises where it is not


@each_patch
def test_conditions_are_well_formed(patch: Patch) -> None:
    for target in patch.targets:
        for text in filter(None, (target.dummy, target.sampling.mixes_if)):
            expressions.check_condition(text)  # raises where it is not


@pytest.mark.parametrize("framework", ["mindspeed_llm", "mindspeed_rl", "sglang", "vllm", "vllm_ascend"])
def test_conditions_name_parameters_that_every_recorded_version_has(framework: str) -> None:
    asked = [target for target in registry.load_patch(framework).targets if target.dummy or target.sampling.mixes_if]
    found = recorded_surfaces.holders(tuple(asked), framework)

    assert {target.path for _, target, _ in found} == {target.path for target in asked}
    for _, target, function in found:
        for text in filter(None, (target.dummy, target.sampling.mixes_if)):
            expressions.compile_condition(text, function.signature())  # raises where it does not


@pytest.mark.parametrize("framework", ["mindspeed_llm", "mindspeed_rl", "sglang", "verl", "vllm", "vllm_ascend"])
def test_calls_of_one_name_are_the_same_pieces_within_a_version(framework: str) -> None:
    """They share a site, and that has one role."""
    roles: dict[object, set[object]] = {}
    for version, target, _ in recorded_surfaces.holders(registry.load_patch(framework).targets, framework):
        site = (version, target.name or target.qualname, target.stage, target.domain)
        roles.setdefault(site, set()).add(target.sampling.role(target.boundary))

    assert {site: told for site, told in roles.items() if len(told) > 1} == {}


@each_patch
def test_callables_of_attributes_and_steps_travel_by_reference(patch: Patch) -> None:
    given = [one for target in patch.targets for one in (target.attributes, target.step, target.step_after)]
    asked = [one for one in given if callable(one)]

    assert [pickle.loads(pickle.dumps(one)) for one in asked] == asked


@each_patch
def test_what_is_limited_is_a_range_without_a_stage(patch: Patch) -> None:
    limited = [one for one in patch.targets if one.coalesce or one.max_depth is not None or one.max_per_s is not None]

    assert {(target.kind, target.stage) for target in limited} <= {(RANGE, None)}


@each_patch
def test_a_global_becomes_something_of_our_own(patch: Patch) -> None:
    values = [str(target.value) for target in patch.targets if target.kind == VALUE]

    assert [value for value in values if not value.startswith("mstxkit.")] == []
