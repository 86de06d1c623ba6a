"""Random programs of bodies: generators that are resumed in any order, and do what they are told, on both engines."""

from __future__ import annotations

from typing import Any, Iterator

from builders import engines, soak
from builders.written_banks import FAKE, Written, WrittenRange, read_bank
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_SETTINGS = settings(max_examples=soak.rounds(3000, 150), deadline=None, suppress_health_check=list(HealthCheck))
BODIES = 4
COUNTERS = ("dropped", "faults", "attributes_lost", "open")
NAMES = [("a", None), ("b", None), ("a", None), ("staged", "s")]
ATTRIBUTES: list[Any] = [None, {"k": 7}, {"k": "text", "l": [1]}, {"k": -1.5, "l": None, "m": True, "n": 1 << 70}]

BODY_ACTIONS = ["yield", "enter", "enter stage", "exit", "mark", "return", "raise", "step", "rotate"]
OPERATIONS = st.tuples(
    st.sampled_from(["send"] * 5 + ["enter", "exit"] * 2 + ["throw", "close", "drop", "at_step", "step", "rotate"]),
    st.integers(0, BODIES - 1), st.sampled_from(BODY_ACTIONS), st.integers(0, 3),
)  # fmt: skip


class Mine(Exception):
    """What is thrown."""


class Bodies:
    """Runs operations on bodies, and keeps what came out of them."""

    def __init__(self, engine: Any, is_nested: bool = False) -> None:
        self.is_nested = is_nested  # are ranges left in the order that a `with` has?
        engine.detach()
        engine.set_clock(FAKE)
        engine.step(0)
        engine.carry(0)
        self.engine, self.written = engine, Written(engine, bank_count=64, bank_bytes=1 << 16)
        self.driven: list[Any] = [None] * BODIES
        self.came: list[Any] = []
        self.counted_before = engine.counters()
        self.around: list[Any] = []

    def run(self, operations: Any) -> Bodies:
        for operation, number, action, attributes in operations:
            self.written.tick(10)
            getattr(self, operation)(number, action, attributes)
        self.driven = [None] * BODIES
        while self.around:
            self.exit(0, "", 0)
        self.current_stage = self.engine.current_stage()
        counters = self.engine.counters()
        self.counted = [counters[key] - self.counted_before[key] for key in COUNTERS]
        return self

    def send(self, number: int, action: str, attributes: int) -> None:
        if self.driven[number] is None:
            self.driven[number] = self._make(number, ATTRIBUTES[attributes])
            action = None  # type: ignore[assignment]
        self._do(number, self.driven[number].send, action)

    def _make(self, number: int, attributes: Any) -> Any:
        def outer() -> Any:
            name, stage = NAMES[number]
            site = self.engine.intern(name, stage)
            return (yield from self.engine.driven(site, self._body(), None, attributes))

        return outer()

    def _do(self, number: int, resume: Any, *given: Any) -> None:
        try:
            self.came.append(resume(*given))
        except (StopIteration, Mine, RuntimeError) as exc:
            self.came.append((type(exc), exc.args))
            self.driven[number] = None

    def _body(self) -> Iterator[Any]:
        opened: list[Any] = []
        try:
            return (yield from self._acts(opened))
        finally:
            while opened:  # not thrown away: on the twin that ends at a garbage collection
                opened.pop().__exit__(None, None, None)

    def _acts(self, opened: list[Any]) -> Any:
        action: Any = "yield"
        while action != "return":
            self.written.tick(1)
            self._act(action, opened)
            try:
                action = yield action, self.engine.current_stage(), self.engine.current_step()
            except Mine as exc:
                if opened:
                    raise
                self.came.append(exc.args)
                action = "yield"
        return len(opened)

    def _act(self, action: str, opened: list[Any]) -> None:
        if action == "enter":
            opened.append(self.engine.mstx_range("inside", n=len(opened)))
            opened[-1].__enter__()
        elif action == "enter stage" and not self.is_nested:
            opened.append(self.engine.stage("of a body"))
            opened[-1].__enter__()
        elif action == "exit" and opened:
            opened.pop().__exit__(None, None, None)
        elif action == "mark":
            self.engine.mark("m", n=1)
        elif action == "raise":
            raise Mine("of a body")
        elif action in ("step", "rotate"):
            getattr(self, action)(0, "", 0)

    def throw(self, number: int, action: str, attributes: int) -> None:
        if self.driven[number] is not None:
            self._do(number, self.driven[number].throw, Mine("thrown"))

    def close(self, number: int, action: str, attributes: int) -> None:
        if self.driven[number] is not None:
            self._do(number, self.driven[number].close)
            self.driven[number] = None

    def drop(self, number: int, action: str, attributes: int) -> None:
        self.driven[number] = None

    def enter(self, number: int, action: str, attributes: int) -> None:
        make = self.engine.stage if number == 0 else self.engine.mstx_range
        self.around.append(make(f"around {number}", **(ATTRIBUTES[attributes] or {})))
        self.around[-1].__enter__()

    def at_step(self, number: int, action: str, attributes: int) -> None:
        self.around.append(self.engine.at_step(100 + number))
        self.around[-1].__enter__()

    def exit(self, number: int, action: str, attributes: int) -> None:
        if self.around:
            self.around.pop(-1 if self.is_nested else number % len(self.around)).__exit__(None, None, None)

    def step(self, number: int, action: str, attributes: int) -> None:
        self.engine.step()

    def rotate(self, number: int, action: str, attributes: int) -> None:
        self.engine.rotate()

    def everything(self) -> list[WrittenRange]:
        self.engine.set_recording(False)
        return [found for bank in self.written.banks for found in read_bank(bank)]


@given(operations=st.lists(OPERATIONS, max_size=40))
@_SETTINGS
def test_both_engines_write_the_same_of_bodies_resumed_in_any_order(both: list[Any], operations: Any) -> None:
    native, twin = (Bodies(engine, is_nested=True).run(operations) for engine in both)

    same(native, twin)


@given(operations=st.lists(OPERATIONS, max_size=40))
@_SETTINGS
def test_the_quick_way_writes_what_the_general_way_writes(operations: Any) -> None:
    twin = engines.load("twin")
    clock = twin.clock_kind()
    try:
        quick = Bodies(twin).run(operations)
        twin.set_sink(2, lambda message, domain: None, lambda token, domain: None)  # it goes the general way
        general = Bodies(twin).run(operations)
    finally:
        twin.clear_sink(2)
        twin.set_recording(False)
        twin.detach()
        twin.set_clock(clock)

    same(quick, general)


def same(one: Bodies, other: Bodies) -> None:
    assert (one.current_stage, other.current_stage) == (None, None)
    assert one.came == other.came
    assert one.everything() == other.everything()
    assert one.written.open == other.written.open == []
    assert one.counted == other.counted
