"""The hot path in C. `mstxkit/engine/twin/hot.py` has the same names and behaviour; see docs/internals/engine.md."""

from types import TracebackType
from typing import (
    Any,
    Awaitable,
    Callable,
    ContextManager,
    Coroutine,
    Generator,
    Generic,
    Iterator,
    TypeVar,
    final,
    overload,
)

_F = TypeVar("_F", bound=Callable[..., Any])
_Decorated = TypeVar("_Decorated", bound=Callable[..., Any] | staticmethod[..., Any] | classmethod[Any, ..., Any])
_R = TypeVar("_R")

NATIVE: bool

@final
class Site:
    """A call site, interned: one per (name, domain, stage) and process. Pickles as a call of the hook `unpickle`."""

    @property
    def name(self) -> str:
        """The name as given."""
    @property
    def stage(self) -> str | None:
        """The site's own stage, or None."""
    @property
    def domain(self) -> str:
        """The mstx domain."""
    @property
    def id(self) -> int:
        """Id in this process's live file."""

@final
class Range:
    """An interval: begins on entry, ends on exit. May be entered again, also while it is open.

    One that is thrown away while open is ended with `error`, at the latest when the garbage collector finds it.
    """

    @property
    def name(self) -> str:
        """The range's name."""
    @property
    def stage(self) -> str | None:
        """The range's own stage, or None."""
    @property
    def domain(self) -> str:
        """The mstx domain."""
    def __enter__(self) -> Range: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    async def __aenter__(self) -> Range: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def __call__(self, function: _F, /) -> _F: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def set(self, **attributes: object) -> None:
        """Add attributes to the innermost open entry before its end."""

@final
class Driven(Generic[_R]):
    """Runs a coroutine or generator inside one range, from its first resume to its return, raise or close."""

    def __await__(self) -> Generator[Any, Any, _R]: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any, /) -> Any:
        """Resume the body with a value."""
    def throw(self, kind: Any, value: Any = ..., traceback: Any = ..., /) -> Any:
        """Resume the body with an exception."""
    def close(self) -> None:
        """Close the body, and the range with it."""

@final
class Span:
    """One range around several pieces of work, for what has no single body: async generators."""

    def drive(self, awaitable: Awaitable[_R], /) -> Driven[_R]:
        """Run one awaitable inside the span."""
    def close(self, error: bool, /) -> None:
        """End the span; `error` says whether it failed."""

@overload
def mstx_range(name: _Decorated, /) -> _Decorated: ...
@overload
def mstx_range(
    name: str, *, stage: str | None = None, domain: str = "default", stream: object = None, **attributes: object
) -> Range:
    """A range: `with`, `async with`, or as a decorator. It never raises, and never hides what the body raises.

    Called as `mstx_range(name, *, stage=None, domain="default", stream=None, **attributes)`.

    Args:
        name: What reports and traces call it. As a decorator it may be left out: the function's own.
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

@overload
def stage(key: _Decorated, /) -> _Decorated: ...
@overload
def stage(key: str, *, domain: str = "default", stream: object = None, **attributes: object) -> Range:
    """A range that is the stage `key`: reports total it by step and rank, and escalation looks it up.

    Called as `stage(key, *, domain="default", stream=None, **attributes)`.
    In a generator, end it before each `yield`: else what the caller does meanwhile counts as its time.

    Args:
        key: Name of the stage, "actor_update" say; the range has the same name. As a decorator it may be left out.
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
    """Stage and step that the caller is inside of, for `carry` on another thread; None outside of any."""

def carry(carried: int | None, /) -> int | None:
    """Be inside of these from now on, in the calling context; returns what to give to `carry` to leave them."""

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

def intern(name: str, stage: str | None = None, domain: str = "default") -> Site:
    """The site of this name, stage and domain. Never raises for bad values: what is no str is named by its type."""

def is_on(site: object, /) -> bool:
    """Is anything on? What a wrapper asks first."""

def timed(site: Site, stream: object = None, attributes: dict[str, object] | None = None) -> Range:
    """A range of a site, for one `with`: with neither stream nor attributes, not to be kept after its end."""

def driven(
    site: Site,
    body: Coroutine[Any, Any, _R] | Generator[Any, Any, _R],
    stream: object = None,
    attributes: dict[str, object] | None = None,
) -> Driven[_R]:
    """Run a coroutine or generator inside one range of a site."""

def opened(site: Site, stream: object = None, attributes: dict[str, object] | None = None) -> Span:
    """One range of a site around several pieces of work."""

def stored(owner: object, path: tuple[tuple[int, object], ...], /) -> Any:
    """The exact bool, int, float, str or None to which the path leads; NotImplemented where there is none to be read.

    Reading runs nobody's code. The twin's is `engine/plain_paths.py`, which knows the kinds of a path's steps.
    """

def recording() -> bool:
    """Is anything on?"""

def set_recording(on: bool, /) -> None:
    """Record from now on, where a live file is attached; or stop."""

def attach(view: memoryview, nonce: int) -> None:
    """Write into this live file from now on.

    Raises:
        ValueError: not a buffer laid out by `livefile.lay_out`.
    """

def detach() -> None:
    """Let go of the live file; ranges that are open write nothing more."""

def rotate() -> bool:
    """Make the active bank full and take the next free one; False when the bank is empty or none is free."""

def full_bank() -> int:
    """The full bank with the lowest sequence number, -1 if none."""

def encode_bank(index: int, /) -> tuple[bytes, bytes, bytes, int, int, tuple[Any, ...]]:
    """The uncompressed payload parts of a sealed block, as `segment.encode_bank`."""

def encode_into(index: int, room: bytearray, at: int, /) -> tuple[int, int, tuple[Any, ...]]:
    """Planes and attributes of a full bank, one after the other, into room from `at` on; as `encode_bank`, it gives how
    many there are and what they reach over.

    Raises:
        ValueError: there is no room for all of its records.
    """

def bank_texts(index: int, /) -> bytes:
    """The texts of a full bank, as `encode_bank` gives them."""

def encode_left(raw: bytes, texts: bytes, salt: int, /) -> tuple[bytes, bytes, bytes, int, int, tuple[Any, ...]]:
    """`encode_bank` for a bank that another process left."""

def text_columns(texts: bytes, /) -> bytes | None:
    """A bank's texts as `encode_bank` gives them, as columns; None where they are not what a bank has."""

def take_summaries(everything: bool = False) -> bytes:
    """What is to be handed over of the stages of steps that are over: rows of 40 bytes, `store/summaries.py`.

    Args:
        everything: Also of the step in force, and of what is in no step: at the end.
    """

def stage_keys() -> list[str]:
    """The keys of all stages, in the order of their ids from 1."""

def stage_waits() -> dict[str, str]:
    """Key of each stage whose ranges have said `waits_for`, to whom; "" where that was no text."""

def process_step() -> int | None:
    """The step in force, whatever `at_step` says."""

def first_step() -> list[int] | None:
    """The first step that was said since recording began, and when, in ticks; None: none was."""

def release_bank(index: int, /) -> None:
    """The bank is free again."""

def limit(site: Site, coalesce: bool = False, max_depth: int | None = None, max_per_s: int | None = None) -> None:
    """What is beyond these limits is coalesced from now on; without any, nothing is. Not for sites with a stage.

    Raises:
        TypeError: `site` is none.
        ValueError: a limit that is neither None nor an int from 0.
    """

def throttle(site: Site, on: bool, /) -> None:
    """Coalesce every call of the site, whatever its limits say; or no more.

    Raises:
        TypeError: `site` is none.
    """

def flush_coalesced() -> None:
    """Write what has been added up."""

def site_costs() -> list[tuple[Site, int, int, int]]:
    """(site, calls, ns, coalesced calls) of every site with calls, since the process began."""

def add_cost(site: Site, ns: float, /) -> None:
    """Something else was done for calls of this site, and took so long."""

def wait(seconds: float, /) -> bool:
    """Sleep until a bank is full or `wake()`; True when woken."""

def wait_for_records(seconds: float, /) -> bool:
    """The same, or until something was recorded since, or a stage entered for the first time, as the next heartbeat
    sees; the Python twin returns after some seconds in any case.
    """

def wake() -> None:
    """Wake the thread that sleeps in `wait`."""

def start_heartbeat(seconds: float, /) -> None:
    """Keep the header's heartbeat and anchors."""

def stop_heartbeat() -> bool:
    """End the heartbeat thread, and wait for it."""

def anchor() -> None:
    """One more anchor in the header, now."""

def clock_kind() -> int:
    """Number of the clock in use, as in docs/internals/format.md; 4 is the fake one."""

def set_clock(kind: int, /) -> None:
    """Choose the clock; only while detached.

    Raises:
        ValueError: a live file is attached, or this machine does not have this clock.
    """

def set_fake_ticks(n: int, /) -> None:
    """What the fake clock says."""

def now() -> int:
    """Ticks of the clock in use."""

def ticks_per_ns() -> float:
    """Ticks of the clock in use per nanosecond."""

def set_sink(
    index: int,
    begin: Callable[[str, str], Any],
    end: Callable[[Any, str], object],
    mark: Callable[[str, Any, str], object] | None = None,
    begin_stream: Callable[[str, Any, str], Any] | None = None,
) -> None:
    """Tell this tool of every range and mark from now on.

    Raises:
        ValueError: there is no such sink.
    """

def clear_sink(index: int, /) -> None:
    """Tell it of nothing more but the ends of what it began.

    Raises:
        ValueError: there is no such sink.
    """

def set_direct(addresses: tuple[int, ...], /) -> None:
    """mstx by C function addresses: see docs/internals/engine.md.

    Raises:
        ValueError: one that is needed is missing.
    """

def clear_direct() -> None:
    """No mstx any more."""

def set_hooks(
    describe: Callable[[object, object, object], tuple[bytes, bytes, str | None, str, str]],
    utf8: Callable[[str], bytes],
    fault: Callable[[str, BaseException], object],
    decorate: Callable[[tuple[str, str | None, str, object, dict[str, object] | None], Callable[..., Any]], Any],
    unpickle: Callable[[str, str | None, str], object] = ...,
) -> None:
    """What the engine needs of the rest of mstxkit; `unpickle` None leaves that one as it is."""

def set_watch(
    entered: Callable[[Site, bool], object] | None,
    left: Callable[[Site, bool], object] | None,
    stepped: Callable[[int], object] | None,
    /,
) -> None:
    """Whom to tell from now on; None: nobody.

    Args:
        entered: A watched range begins; with its site, and whether it may move to another thread.
        left: It has ended; with its site, and whether it failed.
        stepped: Somebody has said the step; what the same thread says again only while ranges are watched.
    """

def watch(on: bool, /) -> None:
    """Tell of watched ranges that begin from now on; or of no more."""

def watch_site(site: Site, /) -> None:
    """Watch it from now on, as a site with a stage is from the beginning.

    Raises:
        TypeError: `site` is none.
    """

def await_first(hook: Callable[[], object] | None, /) -> None:
    """Call this once the next range or mark is about to begin, whoever it is; None: nobody waits for it any more.

    `hook` may switch recording on: then that range is recorded. Threads that come while it runs call it too. A forked
    child waits for nothing until it is told to. Where it returns True, the one after that calls it as well.
    """

def stages_seen() -> list[str]:
    """Keys of the stages that have begun in this process, in the order of their first begin."""

def counters() -> dict[str, int]:
    """What was lost, and what there is."""

def count_fault() -> None:
    """One more fault in the header."""

def stage_times(step: int | None = None) -> dict[str, float]:
    """Stage to seconds in this process, of a step or of the last finished one."""
