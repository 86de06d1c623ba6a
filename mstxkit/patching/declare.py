"""What a patch declares: data only, checked when it is made, so that a framework's file reads as a table.

The same fields, with the same names, are those of a user's YAML file (`targets.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Union

from ..errors import PatchError
from ..pieces import kinds
from ..pieces.kinds import PieceSampling

Attributes = Union[Mapping[str, str], Callable[..., Mapping[str, Any]]]
Step = Union[str, Callable[..., Optional[int]], None]

# What happens to a target: it becomes a range; a function that returns a context manager makes ranges named by its
# first argument; a layer that only calls the next one loses the range that its framework gave it; a global is replaced;
# it becomes a range, in which a function of ours is called with it and decides; that is called, and there is no range.
RANGE, CONTEXT, DELEGATE, VALUE, AROUND, WRAP = KINDS = ("range", "context", "delegate", "value", "around", "wrap")
CORE, EXTRA = TIERS = ("core", "extra")
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_*][\w*]*(\.[A-Za-z_*][\w*]*)*")


@dataclass(frozen=True)
class Target:
    """One function, method or global of a framework.

    Args:
        path: `package.module:Class.method` or `package.module:function`. The last part may hold `*`: every public
            function or method that matches, but not what only `*` alone would match of names beginning with `_`.
        name: The range's name; the framework's own name for it. Default: what is after the colon.
        stage: Canonical stage key (`stages.py`): each call is an occurrence of that stage.
        attributes: Attribute names to expressions (`expressions.py`), or a callable of the call's own arguments.
        step: Expression of the training step at entry; holds for this process from then on. Or a callable of the call's
            own arguments, which returns None where it knows none.
        step_after: The step that the call ends, likewise: the next stage entered belongs to that step plus one.
        role: Whose work it is, recorded as attribute `role`; `"stage"`: that of the enclosing stage.
        process_role: What a process that runs this is, unless it is known already.
        waits: A controller waits in it for its workers, and computes nothing: recorded as attribute `waits_for`. For
            kind `context`, the names of the contexts that do, or True for all.
        kind: `range`, `context`, `delegate`, `value`, `around` or `wrap`.
        value: For kind `value`: `package.module:name` of what the global becomes. For kinds `around` and `wrap`: of the
            function that is called instead, with the framework's function and then the call's own arguments.
        tier: `core`, or `extra`: off unless asked for (`autopatch("verl+extra")`).
        coalesce: Count and total of its calls, instead of one record each.
        max_depth: Calls of it inside each other that are recorded; deeper ones are only counted.
        max_per_s: Records a second; what is beyond is coalesced.
        boundary: What one call is a piece of: `micro_batch`, `mini_batch` or `decode_step`; for sampling in a stage.
        dummy: Condition (`expressions.py`) of calls that are no such piece: batches without work.
        sampling: What a call means for pieces besides; in Python only.
        unless: Path of a symbol of the framework that makes this target superfluous where it exists.
        with_module: Full name of another module: the target is patched only once that is imported, too.
        domain: mstx domain.
        leaves_out: For kind `context`, the names of contexts that become no range: what runs in them has its own.

    Raises:
        PatchError: a field has a value that it cannot have.

    Example:
        >>> from mstxkit import Target
        >>> target = Target("acme_rl.trainer:Trainer.update", stage="actor_update", step="self.global_step")
        >>> target.module, target.qualname
        ('acme_rl.trainer', 'Trainer.update')
    """

    path: str
    name: str | None = None
    stage: str | None = None
    attributes: Attributes = field(default_factory=dict)
    step: Step = None
    step_after: Step = None
    role: str | None = None
    process_role: str | None = None
    waits: bool | tuple[str, ...] = False
    kind: str = RANGE
    value: str | None = None
    tier: str = CORE
    coalesce: bool = False
    max_depth: int | None = None
    max_per_s: int | None = None
    boundary: str | None = None
    dummy: str | None = None
    sampling: PieceSampling = field(default_factory=PieceSampling)
    unless: str | None = None
    with_module: str | None = None
    domain: str = "default"
    leaves_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(str(self.path)):
            raise PatchError(f"path={self.path!r}: a target is written package.module:Class.method")
        if "*" in self.path.rpartition(".")[0].partition(":")[0] or "*" in self.qualname.rpartition(".")[0]:
            raise PatchError(f"path={self.path!r}: only the last part may hold *")
        for name, allowed in (("kind", KINDS), ("tier", TIERS), ("boundary", (None, *kinds.KINDS))):
            choices = ", ".join(filter(None, allowed))
            self._check(name, getattr(self, name) in allowed, f"choose one of {choices}")
        fits = (self.kind in (VALUE, AROUND, WRAP)) == (self.value is not None)
        self._check("value", fits, "goes with kind value, around or wrap, and only these")
        self._check("dummy", self.dummy is None or self.boundary is not None, "goes with boundary, and only with it")
        is_flag, is_context = isinstance(self.waits, bool), self.kind == CONTEXT
        self._check("waits", is_flag or _is_names(self.waits), "True, False, or a tuple of names of contexts")
        self._check("waits", is_flag or is_context, "names of contexts go with kind context only")
        is_left_out = not self.leaves_out or (is_context and _is_names(self.leaves_out))
        self._check("leaves_out", is_left_out, "a tuple of names of contexts, with kind context only")

    def _check(self, name: str, is_right: bool, what: str) -> None:
        if not is_right:
            raise PatchError(f"{name}={getattr(self, name)!r} (of {self.path}): {what}")

    @property
    def module(self) -> str:
        """Full name of the module that defines it."""
        return self.path.partition(":")[0]

    @property
    def qualname(self) -> str:
        """What is after the colon."""
        return self.path.partition(":")[2]


def each(where: str, *names: str, **fields: Any) -> tuple[Target, ...]:
    """A target for each of these functions, all treated alike: `fields` are the other arguments of each `Target`.

    `where`: `package.module` of the functions, or `package.module:Class` of the methods.
    """
    separator = "." if ":" in where else ":"
    return tuple(Target(f"{where}{separator}{name}", **fields) for name in names)


def method(path: str, **fields: Any) -> Target:
    """A target whose range is named by the method alone, without its class."""
    return Target(path, name=path.rpartition(".")[2], **fields)


def by(role: str) -> dict[str, Any]:
    """Fields of a `Target` that is the work of this role, by which a process that runs it is known."""
    return {"role": role, "process_role": role}


def _is_names(names: object) -> bool:
    return isinstance(names, tuple) and all(isinstance(name, str) for name in names)


@dataclass(frozen=True)
class Seam:
    """A framework's own range decorator: what it decorated is recognised, and what it decorates becomes our range.

    Args:
        path: The decorator, `package.module:name`. It is replaced right after its module is imported.
        code_name: Name of the function that it returns, in the framework's source.
        file: End of that source file's path: with `code_name` it tells the framework's wrappers from others.

    Example:
        >>> from mstxkit import Seam
        >>> Seam("acme_rl.profiling:annotate", code_name="wrapper", file="acme_rl/profiling.py").module
        'acme_rl.profiling'
    """

    path: str
    code_name: str
    file: str

    @property
    def module(self) -> str:
        """Full name of the module that defines it."""
        return self.path.partition(":")[0]


@dataclass(frozen=True)
class Patch:
    """A framework: its targets, and what is known of it.

    Args:
        framework: Import root.
        versions: The versions whose source the targets were read from; what decides is whether a symbol is there.
        targets: Its targets.
        seam: Its own range decorator, where it has one.
        roles: Ray actor class name to what a process of it is called in tables; None: its first stage tells.
        default: Is it among `autopatch()` without a name?
        notes: What a user should know: ways in, what stays out of reach.

    Example:
        >>> import mstxkit
        >>> update = mstxkit.Target("acme_rl.trainer:Trainer.update", stage="actor_update")
        >>> patch = mstxkit.Patch("acme_rl", versions=">=1.2,<2", targets=(update,))
        >>> report = mstxkit.autopatch(targets=patch)
        >>> mstxkit.unpatch()
    """

    framework: str
    versions: str
    targets: tuple[Target, ...]
    seam: Seam | None = None
    roles: Mapping[str, str | None] = field(default_factory=dict)
    default: bool = True
    notes: tuple[str, ...] = ()
