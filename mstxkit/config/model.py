"""The canonical configuration: what is recorded, when, where and in which depth, in one vocabulary for every system.

Each field says its unit and where its meaning comes from. Sources: MindSpeed-RL 05a90d7, verl 0.6.1 to 0.9.1,
MindSpeed-LLM c77308a1, MindSpore 2.10.0, torch_npu 2.13.0 (`torch_npu.profiler`, `dynamic_profile`).
"""

from __future__ import annotations

# ruff: noqa: UP007, UP045  (pydantic evaluates annotations, and Python 3.9 has no `X | Y`)
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, Union

from ..errors import ConfigError
from ..store import limits as session_limits
from ..store.options import CONFIG, FLAG, NUMBER, Option, list_settable

try:
    from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, create_model
except ModuleNotFoundError as exc:
    raise ConfigError("a configuration is read by pydantic: pip install 'mstxkit[cli]'") from exc

CountedFrom = Literal["training", "process"]
Boundary = Literal["micro_batch", "mini_batch", "decode_step"]
Act = Literal["observe", "escalate"]

Count = Annotated[int, Field(ge=0, strict=True)]
Positive = Annotated[int, Field(ge=1, strict=True)]
Rank = Annotated[int, Field(ge=0, strict=True)]
Seconds = Annotated[float, Field(ge=0, lt=1e15)]
Flag = Annotated[bool, Field(strict=True)]
Ranks = Union[Literal["all"], Annotated[tuple[Rank, ...], Field(min_length=1)]]
Text = Annotated[str, Field(min_length=1)]


class _Fixed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class Window(_Fixed):
    """Which steps are recorded: `steps` of them from `first_step` on, the same again `repeat` times."""

    first_step: Positive = 1
    """First step that is recorded. Counted from 1, as the framework's log counts when nothing was resumed."""

    steps: Optional[Positive] = 1
    """How many steps in a row one window records; null: to the end of the run."""

    counted_from: CountedFrom = "training"
    """What step 1 is: `training` the first step ever (a resumed run goes on counting: MindSpeed-LLM MCore, verl);
    `process` the first one after this start (MindSpeed-RL, MindSpeed-LLM FSDP2, MindSpore, torch_npu)."""

    warmup: Count = 0
    """Steps before each window in which the profiler is on and records nothing (torch_npu `schedule(warmup=)`)."""

    wait: Count = 0
    """Idle steps before each window's warm-up (torch_npu `schedule(wait=)`); they are between repeated windows."""

    repeat: Count = 1
    """How many windows; 0: until the run ends (torch_npu `schedule(repeat=)`)."""

    more_steps: tuple[Positive, ...] = ()
    """Steps that are recorded besides, each alone, where they are no one window (verl `global_profiler.steps`)."""

    @property
    def skip_first(self) -> int:
        """torch_npu's `schedule(skip_first=)`; below 0 where there is no room for wait and warmup, which is refused."""
        return self.first_step - 1 - self.wait - self.warmup

    @property
    def last_step(self) -> Optional[int]:
        """Last step of the first window, counted from 1; None where it goes to the end of the run."""
        return None if self.steps is None else self.first_step + self.steps - 1


class Sampling(_Fixed):
    """Which part of each stage is recorded, where a whole one is too much."""

    per: Boundary
    """What is counted inside the stage."""

    skip: Count = 0
    """How many of these pass before recording starts, in each occurrence of the stage."""

    record: Positive = 1
    """How many of these are recorded."""


class Budgets(_Fixed):
    """What sessions of one rank may take, as in `capture`; null: its default."""

    cooldown_s: Optional[Seconds] = None
    """Seconds without a session after each request that had one; planned windows do not wait for that."""

    session_s: Optional[Seconds] = None
    """Seconds after which any session is ended."""

    hour_s: Optional[Seconds] = None
    """Seconds of sessions in any hour."""

    run_s: Optional[Seconds] = None
    """Seconds of sessions in a whole run."""

    run_bytes: Optional[Count] = None
    """Bytes of raw data in a whole run; 0: no limit."""


class _Scope(_Fixed):
    enabled: Flag = False
    """Is anything profiled at all? (MindSpeed-RL `profile`, MindSpeed-LLM `--profile`, verl `enable` and `steps`,
    MindSpore `start_step` >= 0)"""

    window: Window = Window()
    """When."""

    stages: Union[Literal["all"], Annotated[tuple[Text, ...], Field(min_length=1)]] = "all"
    """What inside a step: `all` is one recording that goes through the whole step; keys (canonical, `mstxkit.stages`)
    are one recording per occurrence of each of these stages (MindSpeed-RL `stage`, verl `discrete: true`)."""

    stage_names: dict[str, str] = {}
    """The framework's own name of a stage, by canonical key, where it is not that key."""

    ranks: Ranks = "all"
    """Which global ranks record. Never empty: nothing at all is `enabled: false`."""

    replicas: Optional[Ranks] = None
    """Which replicas (indices from 0) of the inference engine record the stage actor_generate, where these are chosen
    apart from ranks (verl's Agent Loop); null: `ranks` decides."""


def _type_of(option: Option) -> Any:
    """What pydantic takes for an option."""
    word: Any = Literal[option.values] if option.values else Text
    if option.is_list:
        return Annotated[tuple[word, ...], Field(min_length=1)] if option.default else tuple[word, ...]
    return {FLAG: Flag, NUMBER: Optional[Annotated[float, Field(ge=0)]]}.get(option.kind, word)


if TYPE_CHECKING:
    ConfigLimits = session_limits.SessionLimits

    class _Depth(_Scope):
        def __init__(self, **fields: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

else:
    _limits, _options = session_limits.by_name(), list_settable(CONFIG)
    _within = {
        name: Field(ge=1, le=limit.most, strict=True) if limit.kind is int else Field(gt=0, lt=limit.most)
        for name, limit in _limits.items()
    }
    ConfigLimits = create_model(
        "Limits", __base__=_Fixed, __module__=__name__, __doc__=session_limits.SessionLimits.__doc__,
        **{
            name: (Optional[Annotated[limit.kind, _within[name]]], Field(None, description=limit.meaning))
            for name, limit in _limits.items()
        },
    )  # fmt: skip
    _Depth = create_model(
        "_Depth", __base__=_Scope, __module__=__name__,
        **{option.name: (_type_of(option), Field(option.default, description=option.meaning)) for option in _options},
    )  # fmt: skip


class Config(_Depth):
    """One profiling configuration, as every system is read and written."""

    # Before these fields stand those of `_Scope`, and the options of `store.options.OPTIONS`.

    path: str = ""
    """Folder of the data; empty: the system's own default."""

    sampling: Optional[Sampling] = None
    """A part of each stage only."""

    limits: Optional[ConfigLimits] = None
    """When a recording ends early."""

    light: Optional[Text] = None
    """Schedule of light capture besides (mstxkit's own): `every 100 steps, 1 step`; null: none."""

    budgets: Optional[Budgets] = None
    """What sessions may take (mstxkit's own)."""

    act: Optional[Act] = None
    """May verdicts ask for profiles by themselves (mstxkit's own)? `escalate`: yes; `observe`, as with null: no."""

    takes_over: Flag = False
    """Does mstxkit carry this out also where the framework would, which is kept from it (MindSpeed-RL, -LLM, verl)?"""

    # The frameworks whose own section it was read from, or that have one of their own beside it: see `configuring`.
    _own_of: tuple[str, ...] = PrivateAttr(())

    extras: dict[str, dict[str, Any]] = {}
    """What only one system has, by its flavour and its own name, so that reading and writing that flavour loses
    nothing."""

    def __eq__(self, other: object) -> bool:
        """Do they say the same, wherever they were read from?"""
        return isinstance(other, Config) and self.__dict__ == other.__dict__
