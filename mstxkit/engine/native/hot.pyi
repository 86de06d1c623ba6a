"""The hot path in C. `mstxkit/engine/twin/hot.py` has the same names and behaviour; see docs/internals/engine.md."""

from types import TracebackType
from typing import Any, Awaitable, Callable, ContextManager, Coroutine, Generator, Generic, Iterator, TypeVar, final

_F = TypeVar("_F", bound=Callable[..., Any])
_R = TypeVar("_R")

NATIVE: bool

@final
class Site:
    """A call site, interned: one per (name, domain, stage) and process. Pickles as a call of the hook `unpickle`."""

    @property
    def name(self) -> str: ...
    @property
    def stage(self) -> str | None: ...
    @property
    def domain(self) -> str: ...
    @property
    def id(self) -> int: ...

@final
class Range:
    """An interval: begins on entry, ends on exit. May be entered again, also while it is open."""

    @property
    def name(self) -> str: ...
    @property
    def stage(self) -> str | None: ...
    @property
    def domain(self) -> str: ...
    def __enter__(self) -> Range: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    async def __aenter__(self) -> Range: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def __call__(self, function: _F, /) -> _F: ...
    def set(self, **attributes: object) -> None: ...

@final
class Driven(Generic[_R]):
    """Runs a coroutine or generator inside one range, from its first resume to its return, raise or close."""

    def __await__(self) -> Generator[Any, Any, _R]: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any, /) -> Any: ...
    def throw(self, kind: Any, value: Any = ..., traceback: Any = ..., /) -> Any: ...
    def close(self) -> None: ...

@final
class Span:
    """One range around several pieces of work, for what has no single body: async generators."""

    def drive(self, awaitable: Awaitable[_R], /) -> Driven[_R]: ...
    def close(self, error: bool, /) -> None: ...

def mstx_range(
    name: str, *, stage: str | None = None, domain: str = "default", stream: object = None, **attributes: object
) -> Range:
    """A range: `with`, `async with`, or as a decorator. It never raises, and never hides what the body raises.

    Called as `mstx_range(name, *, stage=None, domain="default", stream=None, **attributes)`.

    Args:
        name: What reports and traces call it.
        stage: Key of a stage, where the range is an occurrence of one.
        domain: mstx domain.
        stream: Device stream, for mstx: its ranges then also lie in the device's timeline.
        attributes: str, bool, int, float; more by `set` on the range, before it ends.

    Cost: less than two empty `with` statements while recording, less than one while nothing listens; an attribute adds
    to it. Times are kept in ns.

    Example:
        >>> from mstxkit import mstx_range
        >>> with mstx_range("rerank", tokens=512) as found:
        ...     found.set(kept=7)
    """

def stage(key: str, *, domain: str = "default", stream: object = None, **attributes: object) -> Range:
    """A range that is the stage `key`: reports total it by step and rank, and escalation looks it up.

    Called as `stage(key, *, domain="default", stream=None, **attributes)`.

    Args:
        key: Name of the stage, "actor_update" say; the range has the same name.
        domain: mstx domain.
        stream: Device stream, for mstx.
        attributes: As those of `mstx_range`.

    Cost: that of `mstx_range`, and the sum that `stage_times` keeps. A range inside of it belongs to the stage, on
    the same thread and in the tasks that it creates; `mstxkit.autopatch` takes it along into thread pools.

    Example:
        >>> import mstxkit
        >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward", prompts=64):
        ...     mstxkit.current_stage()
        'reward'
    """

def mark(message: str, *, domain: str = "default", stream: object = None, **attributes: object) -> None:
    """An instant, inside of what is open.

    Args:
        message: What reports and traces call it.
        domain: mstx domain.
        stream: Device stream, for mstx.
        attributes: As those of `mstx_range`.

    Cost: it reads the clock once, a range twice.

    Example:
        >>> from mstxkit import mark
        >>> mark("checkpoint written", bytes=1 << 20)
    """

def step(n: int | None = None) -> int | None:
    """The next step, or step n, for this process: all its threads. Returns the step in force, None with MSTXKIT_OFF=1.

    A range keeps the step that is in force when it begins. What is no whole number from 0 on is counted as a fault and
    ignored.

    Args:
        n: Number of the step; None: one more than before, 0 at first.

    Example:
        >>> from mstxkit import step
        >>> step(), step(), step(10), step()
        (0, 1, 10, 11)
    """

def at_step(n: int) -> ContextManager[object]:
    """Give the enclosing task or thread a step of its own, and the tasks created inside.

    For trainers that have several steps in flight. Elsewhere `step` goes on to hold.

    Args:
        n: Number of the step, from 0 on.

    Example:
        >>> from mstxkit import at_step, current_step
        >>> with at_step(7):
        ...     current_step()
        7
    """

def carried() -> int | None:
    """Stage and step in force here, for `carry` on another thread; None where there is none of its own."""

def carry(carried: int | None, /) -> int | None:
    """Put what `carried` gave in force on this thread; returns what was before, to be put back."""

def current_step() -> int | None:
    """The step in force, that of `at_step` before that of `step`; None until one is set.

    Example:
        >>> from mstxkit import current_step, step
        >>> step(3)
        3
        >>> current_step()
        3
    """

def current_stage() -> str | None:
    """The key of the innermost stage that this task or thread is inside of, or None.

    None also while nothing records and nothing listens: a program must not decide by it what it computes.

    Example:
        >>> import mstxkit
        >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"):
        ...     mstxkit.current_stage()
        'reward'
    """

def intern(name: str, stage: str | None = None, domain: str = "default") -> Site: ...
def is_on(site: object, /) -> bool: ...
def timed(site: Site, stream: object = None, attributes: dict[str, object] | None = None) -> Range: ...
def driven(
    site: Site,
    body: Coroutine[Any, Any, _R] | Generator[Any, Any, _R],
    stream: object = None,
    attributes: dict[str, object] | None = None,
) -> Driven[_R]: ...
def opened(site: Site, stream: object = None, attributes: dict[str, object] | None = None) -> Span: ...
def recording() -> bool: ...
def set_recording(on: bool, /) -> None: ...
def attach(view: memoryview, nonce: int) -> None: ...
def detach() -> None: ...
def rotate() -> bool: ...
def full_bank() -> int: ...
def encode_bank(index: int, /) -> tuple[bytes, bytes, bytes, int, int]: ...
def encode_left(raw: bytes, texts: bytes, salt: int, /) -> tuple[bytes, bytes, bytes, int, int]: ...
def release_bank(index: int, /) -> None: ...
def limit(site: Site, coalesce: bool = False, max_depth: int | None = None, max_per_s: int | None = None) -> None: ...
def throttle(site: Site, on: bool, /) -> None: ...
def flush_coalesced() -> None: ...
def site_costs() -> list[tuple[Site, int, int, int]]: ...
def add_cost(site: Site, ns: float, /) -> None: ...
def wait(seconds: float, /) -> bool: ...
def wake() -> None: ...
def start_heartbeat(seconds: float, /) -> None: ...
def stop_heartbeat() -> None: ...
def anchor() -> None: ...
def clock_kind() -> int: ...
def set_clock(kind: int, /) -> None: ...
def set_fake_ticks(n: int, /) -> None: ...
def now() -> int: ...
def ticks_per_ns() -> float: ...
def set_sink(
    index: int,
    begin: Callable[[str, str], Any],
    end: Callable[[Any, str], object],
    mark: Callable[[str, Any, str], object] | None = None,
    begin_stream: Callable[[str, Any, str], Any] | None = None,
) -> None: ...
def clear_sink(index: int, /) -> None: ...
def set_direct(addresses: tuple[int, ...], /) -> None: ...
def clear_direct() -> None: ...
def set_hooks(
    describe: Callable[[object, object, object], tuple[bytes, bytes, str | None, str, str]],
    utf8: Callable[[str], bytes],
    fault: Callable[[str, BaseException], object],
    decorate: Callable[[tuple[str, str | None, str, object, dict[str, object] | None], Callable[..., Any]], Any],
    unpickle: Callable[[str, str | None, str], object] = ...,
) -> None: ...
def set_watch(
    entered: Callable[[Site, bool], object] | None,
    left: Callable[[Site, bool], object] | None,
    stepped: Callable[[int], object] | None,
    /,
) -> None: ...
def watch(on: bool, /) -> None: ...
def watch_site(site: Site, /) -> None: ...
def stages_seen() -> list[str]: ...
def counters() -> dict[str, int]: ...
def count_fault() -> None: ...
def stage_times(step: int | None = None) -> dict[str, float]: ...
