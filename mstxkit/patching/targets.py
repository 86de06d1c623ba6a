"""A user's own targets: `Patch` and `Target` objects, or a YAML file with the same fields, as a list of patches.

    framework: acme_rl                      # default: the import root of the first target
    versions: ">=1.2"
    targets:
      - acme_rl.trainer:Trainer.save        # a path alone: a range of that name
      - path: acme_rl.trainer:Trainer.fit
        stage: train_step
        step: self.iteration
        attributes: {prompts: len(batch)}

Every mistake in a file is told at once, each with its line, its field and what is allowed.
"""

from __future__ import annotations

import dataclasses
import os
import re
from functools import partial
from typing import Any, Callable, Iterable, Mapping

from ..errors import PatchError
from ..pieces import kinds
from . import declare, expressions
from .declare import Patch, Seam, Target
from .sheet import MOST_PROBLEMS, YAML_SUFFIXES, Sheet, compose_file, is_null, name_field, suggest_nearest

# A few bytes of YAML can stand for a lot (`- *alias`): what is made of them is limited too.
MOST_TARGETS, MOST_ATTRIBUTES = 2000, 64
_SYMBOL = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
# What only Python says: the value is a dataclass, or a function of ours.
_PYTHON_ONLY = ("sampling",)
_CHOICES = {
    "kind": tuple(kind for kind in declare.KINDS if kind not in (declare.AROUND, declare.WRAP)),
    "tier": declare.TIERS,
    "boundary": kinds.KINDS,
}


def as_patches(targets: Any) -> list[Patch]:
    """What was given as `autopatch(targets=...)`, as patches.
    `targets`: a YAML file's path, a `Patch`, a `Target`, or an iterable of these and of targets' paths. Targets of one
    iterable become one patch, called by the import root of the first. Raises PatchError: it is none of these, a file is
    wrong, or an expression is malformed.
    """
    patches = _read_patches(targets)
    for target in (target for patch in patches for target in patch.targets):
        if not isinstance(target, Target):
            raise PatchError(f"{target!r} is no target: give Target(...)")
        attributes = {} if callable(target.attributes) else target.attributes
        if not isinstance(attributes, Mapping):
            raise PatchError(f"attributes={attributes!r} (of {target.path}): names to expressions, or a callable")
        for text in (*attributes.values(), target.step, target.step_after):
            if text is not None and not callable(text):
                expressions.check(text)
        for text in filter(None, (target.dummy, target.sampling.mixes_if)):
            expressions.check_condition(text)
    return patches


def _read_patches(targets: Any) -> list[Patch]:
    if isinstance(targets, Patch):
        return [targets]
    if isinstance(targets, Target):
        return [Patch(_root_of(targets.path), "", (targets,))]
    if isinstance(targets, (str, os.PathLike)):
        return [read_patch(targets)]
    if isinstance(targets, Mapping) or not isinstance(targets, Iterable):
        raise PatchError(f"targets={targets!r}: give a Patch, Targets, or the path of a YAML file")
    wholes: list[Any] = []  # patches, and files of them
    loose: list[Target] = []
    for target in targets:
        if isinstance(target, (Patch, os.PathLike)) or (isinstance(target, str) and target.endswith(YAML_SUFFIXES)):
            wholes.append(target)
        elif isinstance(target, (Target, str)):
            loose.append(target if isinstance(target, Target) else Target(target))
        else:
            raise PatchError(f"{target!r} is no target: give Target(...), or its path package.module:Class.method")
    patches = [patch for whole in wholes for patch in _read_patches(whole)]
    return [*patches, *([Patch(_root_of(loose[0].path), "", tuple(loose))] if loose else [])]


def _root_of(path: str) -> str:
    return path.partition(":")[0].partition(".")[0]


def read_patch(path: str | os.PathLike[str]) -> Patch:
    """The patch that a YAML file declares.
    Raises PatchError: the file cannot be read or is wrong. All that is wrong is in the message, with file, line and
    field.
    """
    sheet = Sheet(os.fspath(path))
    root = compose_file(sheet.name)
    fields = _read_fields(sheet, root, "", Patch)
    if "targets" not in fields:
        sheet.wrong(root, "targets: missing: a list of what is to become a range")
        sheet.stop_if_wrong()
    node = fields.pop("targets")
    items = sheet.items(node, "targets", MOST_TARGETS)
    if not items and not sheet.problems:
        sheet.wrong(node, "targets: there are none")
    made = [_read_target(sheet, item, f"targets[{i}]") for i, item in enumerate(items)]
    targets = tuple(target for target in made if target is not None)
    values = {name: _PATCH_FIELDS[name](sheet, node, name) for name, node in fields.items()}
    sheet.stop_if_wrong()
    fields_set = {name: value for name, value in values.items() if value is not None}
    return Patch(**{"framework": _root_of(targets[0].path), "versions": "", **fields_set, "targets": targets})


def _read_target(sheet: Sheet, node: Any, where: str) -> Target | None:
    if node.id == "scalar":
        path = _path(sheet, node, where)
        return None if path is None else Target(path)
    before = len(sheet.problems)
    fields = _read_fields(sheet, node, where, Target)
    values = {name: _TARGET_FIELDS[name](sheet, field, f"{where}.{name}") for name, field in fields.items()}
    if node.id == "mapping" and ("path" not in fields or is_null(fields["path"])):
        sheet.wrong(node, f"{where}.path: missing: package.module:Class.method")
    if len(sheet.problems) > before:
        return None
    try:
        return Target(**{name: value for name, value in values.items() if value is not None})
    except PatchError as exc:
        sheet.wrong(node, f"{where}: {exc}")
        return None


def _read_fields(sheet: Sheet, node: Any, where: str, kind: Any) -> dict[str, Any]:
    """The nodes of a mapping that is to become an object of this kind, by field."""
    allowed = [field.name for field in dataclasses.fields(kind) if field.name not in _PYTHON_ONLY]
    entries = sheet.entries(node, where, len(allowed) + MOST_PROBLEMS)
    for name, (key, _) in entries.items():
        if name not in allowed:
            sheet.wrong(key, f"{name_field(where, name)}: unknown field{suggest_nearest(name, allowed)}")
    return {name: value for name, (_, value) in entries.items() if name in allowed}


def _read_shaped(sheet: Sheet, node: Any, where: str, fits: Callable[[str], object], what: str) -> str | None:
    text = sheet.text(node, where)
    if text is not None and not fits(text):
        sheet.wrong(node, f"{where}={text!r}: {what}")
    return text


def _read_checked(sheet: Sheet, node: Any, where: str, check: Callable[[str], object]) -> str | None:
    """A text that passes a check which raises; None where it does not."""
    text = sheet.text(node, where)
    try:
        if text is not None:
            check(text)
        return text
    except PatchError as exc:
        sheet.wrong(node, f"{where}: {exc}")
        return None


_path, _expression = partial(_read_checked, check=Target), partial(_read_checked, check=expressions.check)
_symbol = partial(_read_shaped, fits=_SYMBOL.fullmatch, what="a symbol is written package.module:name")
_framework = partial(_read_shaped, fits=str.isidentifier, what="the import root is needed, what follows `import`")


def _read_choice(sheet: Sheet, node: Any, where: str) -> str | None:
    text, allowed = sheet.text(node, where), _CHOICES[where.rpartition(".")[2]]
    if text is not None and text not in allowed:
        sheet.wrong(node, f"{where}={text!r}{suggest_nearest(text, allowed, 'choose one of')}")
    return text


def _read_named(sheet: Sheet, node: Any, where: str, value_of: Callable[..., str | None]) -> dict[str, str] | None:
    if node.id == "scalar" and is_null(node):
        return None
    entries = sheet.entries(node, where, MOST_ATTRIBUTES)
    texts = {name: value_of(sheet, value, f"{where}.{name}") for name, (_, value) in entries.items()}
    for name in [name for name, (_, value) in entries.items() if value.id == "scalar" and is_null(value)]:
        sheet.wrong(entries[name][0], f"{where}.{name}: empty")
    return {name: value for name, value in texts.items() if value is not None}


def _read_notes(sheet: Sheet, node: Any, where: str) -> tuple[str, ...] | None:
    nodes = [node] if node.id == "scalar" else sheet.items(node, where, MOST_PROBLEMS)
    texts = [sheet.text(child, where) for child in nodes]
    return tuple(text for text in texts if text is not None)


def _read_seam(sheet: Sheet, node: Any, where: str) -> Seam | None:
    if node.id == "scalar" and is_null(node):
        return None
    fields = _read_fields(sheet, node, where, Seam)
    readers: dict[str, _FieldReader] = {"path": _symbol, "code_name": Sheet.text, "file": Sheet.text}
    values = {name: readers[name](sheet, field, f"{where}.{name}") for name, field in fields.items()}
    for name in [name for name in readers if values.get(name) is None]:
        sheet.wrong(node, f"{where}.{name}: missing")
    texts = {name: value or "" for name, value in values.items()}
    return Seam(**texts) if len(texts) == len(readers) else None


_FieldReader = Callable[[Sheet, Any, str], Any]
_TARGET_FIELDS: dict[str, _FieldReader] = {
    "path": _path, "name": Sheet.text, "stage": Sheet.text, "attributes": partial(_read_named, value_of=_expression),
    "step": _expression, "step_after": _expression, "role": Sheet.text, "process_role": Sheet.text,
    "kind": _read_choice,
    "value": _symbol, "tier": _read_choice, "coalesce": Sheet.flag, "max_depth": Sheet.number,
    "max_per_s": Sheet.number,
    "boundary": _read_choice, "dummy": partial(_read_checked, check=expressions.check_condition), "unless": _symbol,
    "with_module": Sheet.text, "domain": Sheet.text, "leaves_out": _read_notes,
    "waits": lambda sheet, node, where: (Sheet.flag if node.id == "scalar" else _read_notes)(sheet, node, where),
}  # fmt: skip
_PATCH_FIELDS: dict[str, _FieldReader] = {
    "framework": _framework, "versions": Sheet.text, "seam": _read_seam,
    "roles": partial(_read_named, value_of=Sheet.text),
    "default": Sheet.flag, "notes": _read_notes,
}  # fmt: skip
