"""What the frameworks hold in each recorded version: functions with their parameters, decorators and kinds.

`contracts/surfaces/*.json` are whole packages; `also_recorded.json` are single functions of modules that those leave
out, in the same form (MindSpeed-RL's logger, MindSpeed-LLM's inference, and Megatron-LM core_r0.8.0 under MindSpeed-LLM
2.1.0, core_v0.12.1 under all later versions and MindSpeed-RL's master).
"""

from __future__ import annotations

import inspect
import json
from functools import cache
from pathlib import Path
from typing import Any, Callable, NamedTuple

from builders.contracts.surface import Surface

from mstxkit.patching import trainer_settings
from mstxkit.patching.declare import Target

SURFACES = Path(__file__).parents[1] / "contracts" / "surfaces"
ALSO = Path(__file__).with_name("also_recorded.json")
# "x=" has a default, "*" alone begins what is by keyword only.
_KINDS = {"*": inspect.Parameter.VAR_POSITIONAL, "**": inspect.Parameter.VAR_KEYWORD}


class Function(NamedTuple):
    """A function as one version holds it; `kind` is def, gen, async or asyncgen."""

    kind: str
    parameters: tuple[str, ...]
    decorators: tuple[str, ...]

    def signature(self) -> inspect.Signature:
        """What `inspect.signature` would say, without annotations and with None for every default."""
        found: list[inspect.Parameter] = []
        kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
        for text in self.parameters:
            stars, name = text[: len(text) - len(text.lstrip("*"))], text.strip("*=")
            if name:
                default = None if text.endswith("=") else inspect.Parameter.empty
                found.append(inspect.Parameter(name, _KINDS.get(stars, kind), default=default))
            if stars == "*":
                kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature(found)


def versions(framework: str) -> list[str]:
    """The recorded versions of a framework, oldest first."""
    return sorted(path.stem[len(framework) + 1 :] for path in SURFACES.glob(f"{framework}-*.json"))


@cache
def modules(framework: str, version: str) -> dict[str, Any]:
    """Module name to what it holds."""
    found: dict[str, Any] = json.loads((SURFACES / f"{framework}-{version}.json").read_text())["modules"]
    for one in json.loads(ALSO.read_text()):
        if one["framework"] == framework and version in one["versions"]:
            assert one["module"] not in found
            found[one["module"]] = one
    return found


@cache
def functions(framework: str, version: str) -> dict[str, Function]:
    """`module:Class.method` or `module:function` to what it is."""
    found: dict[str, Function] = {}
    for module, held in modules(framework, version).items():
        pairs = list(held.get("functions", {}).items())
        for name, one in held.get("classes", {}).items():
            pairs += [(f"{name}.{method}", inner) for method, inner in one["methods"].items()]
        for name, one in pairs:
            found[f"{module}:{name}"] = Function(one["kind"], tuple(one["params"]), tuple(one.get("decorators", ())))
    return found


def actors(framework: str, version: str) -> set[str]:
    """Names of the classes under `@ray.remote`."""
    return {
        name
        for held in modules(framework, version).values()
        for name, one in held.get("classes", {}).items()
        if any(decorator.startswith("ray.remote") for decorator in one.get("decorators", ()))
    }


@cache
def surface(framework: str, version: str) -> Surface:
    """All of a version, for a stand-in package."""
    return Surface(framework, version, modules(framework, version))


def call(function: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """Call a stand-in with these arguments, and a text for every other that it needs."""
    bound = inspect.signature(function).bind_partial(*args, **given)
    needed = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind not in _KINDS.values()
    ]
    return function(*args, **given, **{name: "x" for name in needed if name not in bound.arguments})


def expressions(target: Target) -> list[str]:
    """All expressions of a target."""
    learns = getattr(target.attributes, "__module__", "") == trainer_settings.__name__  # and gives no attributes
    attributes = {} if learns else target.attributes
    assert not callable(attributes)
    return [*attributes.values(), *(one for one in (target.step, target.step_after) if isinstance(one, str))]


def holders(targets: tuple[Target, ...], framework: str) -> list[tuple[str, Target, Function]]:
    """Every (version, target, function) where that version holds what the target names."""
    return [
        (version, target, functions(framework, version)[target.path])
        for version in versions(framework)
        for target in targets
        if target.path in functions(framework, version)
    ]
