"""Which values of attributes are taken, as what; and that nothing is asked of the others. On both engines."""

from __future__ import annotations

import datetime
import enum
import importlib.util
import logging
import math
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from builders.fresh_engine import run_fresh
from builders.threads import elsewhere
from builders.written_banks import Written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mstxkit import faults
from mstxkit.engine import plain_values

np = pytest.importorskip("numpy")


class Hostile:
    """Does nothing but raise, whatever it is asked; and remembers that it was."""

    asked: list[str] = []

    def _raise(self, *args: Any, **kwargs: Any) -> Any:
        Hostile.asked.append("asked")
        raise RuntimeError

    __str__ = __repr__ = __float__ = __int__ = __index__ = __bool__ = __array__ = __fspath__ = __eq__ = _raise
    __hash__ = __len__ = __iter__ = __getattr__ = __getattribute__ = __class_getitem__ = __format__ = _raise
    item = tolist = isoformat = dtype = ndim = shape = name = value = _raise


class HostileType(type):
    """A type that cannot be hashed or compared, and has no name."""

    def __hash__(cls) -> int:
        Hostile.asked.append("hash of a type")
        raise RuntimeError

    def __eq__(cls, other: object) -> bool:
        Hostile.asked.append("== of a type")
        raise RuntimeError

    def __subclasscheck__(cls, other: type) -> bool:
        Hostile.asked.append("subclass of a type")
        raise RuntimeError

    def __getattribute__(cls, name: str) -> Any:
        Hostile.asked.append(name)
        raise RuntimeError


class OfHostileType(metaclass=HostileType):
    pass


class HostilePath(PurePosixPath):
    __slots__ = ()
    __str__ = __fspath__ = Hostile._raise


class HostileNumber(Decimal):
    __float__ = __str__ = is_nan = Hostile._raise


class HostileDay(datetime.datetime):
    isoformat = __str__ = Hostile._raise


class HostileZone(datetime.tzinfo):
    utcoffset = dst = tzname = Hostile._raise


class HostileInt64(np.int64):  # type: ignore[misc]
    __int__ = __index__ = item = __str__ = Hostile._raise


class HostileArray(np.ndarray):  # type: ignore[misc]
    item = __getitem__ = __array_finalize__ = __float__ = Hostile._raise


class Colour(enum.Enum):
    RED = "red"
    GREEN = 2
    NOTHING = None
    WEIGHT = "half"
    HOME = PurePosixPath("/home")
    PAIR = (1, 2)
    ASKED = object()

    @property
    def name(self) -> Any:
        return Hostile._raise(self)

    value = __str__ = __repr__ = name  # type: ignore[assignment]


Colour.ASKED._value_ = Hostile()
Colour.WEIGHT._value_ = np.float32(0.5)  # up to Python 3.10 its class would compare it with the tuple


class Nested(enum.Enum):
    OF_ANOTHER = Colour.RED


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2
    HUGE = 1 << 70


class Word(str, enum.Enum):
    YES = "yes"


def without_unit() -> Any:
    """NumPy 2.5 warns of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return np.timedelta64(1)


def of_objects() -> Any:
    one = np.empty(1, dtype=object)
    one[0] = Hostile()
    return one.reshape(())


UTC, HERE = datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=8))
DAY = datetime.datetime(2026, 11, 22, 13, 14, 15, 160)
TAKEN = {
    "bool_": (np.bool_(True), True),
    **{kind.__name__: (kind(7), 7) for kind in (np.int8, np.int16, np.int32, np.int64, np.longlong, np.intc)},
    **{kind.__name__: (kind(200), 200) for kind in (np.uint8, np.uint16, np.uint32, np.uint64, np.ulonglong)},
    **{kind.__name__: (kind(0.5), 0.5) for kind in (np.float16, np.float32, np.float64, np.longdouble)},
    "smallest int64": (np.int64(-(1 << 63)), -(1 << 63)),
    "largest of uint64": (np.uint64((1 << 63) - 1), (1 << 63) - 1),
    "longdouble beyond a double": (np.longdouble("1e4000"), math.inf),
    "str_": (np.str_("text"), "text"),
    "0-d array": (np.array(7), 7),
    "0-d array of another byte order": (np.array(7, dtype=">i4"), 7),
    "0-d float16": (np.array(1.5, dtype=np.float16), 1.5),
    "0-d longdouble": (np.array(1.5, dtype=np.longdouble), 1.5),
    "0-d bool": (np.array(False), False),
    "0-d text": (np.array("text"), "text"),
    "0-d view": (np.arange(9).reshape(3, 3)[1, 1:2].reshape(()), 4),
    "0-d date": (np.array("2026-11-22", dtype="datetime64[D]"), "2026-11-22"),
    "datetime64": (np.datetime64("2026-11-22T13:14:15.000000160"), "2026-11-22T13:14:15.000000160"),
    "datetime64 NaT": (np.datetime64("NaT", "s"), "NaT"),
    "timedelta64": (np.timedelta64(1500, "ms"), 1.5),
    "timedelta64 in weeks": (np.timedelta64(2, "W"), 1_209_600.0),
    "timedelta64 in steps": (np.array(3, dtype="timedelta64[25us]")[()], 75e-6),
    "decimal": (Decimal("2.50"), 2.5),
    "decimal beyond a float": (Decimal("-1e9999"), -math.inf),
    "pure path": (PurePosixPath("/a/b"), "/a/b"),
    "path": (Path("a") / "ü", "a/ü"),
    "windows path": (PureWindowsPath("c:/a"), "c:\\a"),
    "path with a surrogate": (Path("/\udc80"), "/\\udc80"),
    "datetime": (DAY, "2026-11-22T13:14:15.000160"),
    "datetime, UTC": (DAY.replace(tzinfo=UTC), "2026-11-22T13:14:15.000160+00:00"),
    "datetime, +8": (DAY.replace(tzinfo=HERE), "2026-11-22T13:14:15.000160+08:00"),
    "datetime, ZoneInfo": (DAY.replace(tzinfo=ZoneInfo("UTC")), "2026-11-22T13:14:15.000160+00:00"),
    "date": (DAY.date(), "2026-11-22"),
    "time": (DAY.time(), "13:14:15.000160"),
    "timedelta": (datetime.timedelta(milliseconds=-1500), -1.5),
    "enum": (Colour.RED, "red"),
    "enum of int": (Colour.GREEN, 2),
    "enum of None": (Colour.NOTHING, None),
    "enum of numpy": (Colour.WEIGHT, 0.5),
    "enum of a path": (Colour.HOME, "/home"),
    "enum of a tuple": (Colour.PAIR, "PAIR"),
    "enum of who knows": (Colour.ASKED, "ASKED"),
    "enum of an enum": (Nested.OF_ANOTHER, "OF_ANOTHER"),
    "flag": (Access.READ | Access.WRITE, 3),
    "large flag": (Access.HUGE, "HUGE"),
    "enum of text": (Word.YES, "yes"),
}  # fmt: skip
NOT_TAKEN = {
    "uint64 beyond 64 bits": (np.uint64(1 << 63), "uint64"),
    "complex": (np.complex64(1), "complex64"),
    "bytes_": (np.bytes_(b"x"), "bytes_"),
    "void": (np.zeros(1, dtype=[("a", int)])[0], "void"),
    "months": (np.timedelta64(1, "M"), "timedelta64"),
    "no unit": (without_unit(), "timedelta64"),
    "one value, one dimension": (np.array([7]), "ndarray"),
    "array": (np.arange(3), "ndarray"),
    "0-d array of objects": (of_objects(), "ndarray"),
    "0-d structure": (np.array((1,), dtype=[("a", int)]), "ndarray"),
    "0-d complex": (np.array(1j), "ndarray"),
    "0-d bytes": (np.array(b"x"), "ndarray"),
    "0-d masked": (np.ma.masked_array(7), "MaskedArray"),
    "masked": (np.ma.masked, "MaskedConstant"),
    "dtype": (np.dtype("i4"), type(np.dtype("i4")).__name__),
    "scalar's subclass": (HostileInt64(7), "HostileInt64"),
    "array's subclass": (np.ndarray.__new__(np.memmap, ()), "memmap"),
    "numpy": (np, "module"),
    "fraction": (Fraction(1, 2), "Fraction"),
    "path's subclass": (HostilePath("/a"), "HostilePath"),
    "decimal's subclass": (HostileNumber(1), "HostileNumber"),
    "datetime's subclass": (HostileDay(2026, 1, 1), "HostileDay"),
    "somebody's time zone": (DAY.replace(tzinfo=HostileZone()), "datetime"),
    "time zone": (UTC, "timezone"),
    "hostile": (Hostile(), "Hostile"),
    "of a hostile type": (type.__call__(OfHostileType), "OfHostileType"),
    "hostile type": (OfHostileType, "HostileType"),
    "NotImplemented": (NotImplemented, "NotImplementedType"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_is_asked() -> Any:
    """Whatever the test gives: none of the methods that a class of the program's brought is called."""
    Hostile.asked.clear()
    yield
    assert Hostile.asked == []


@pytest.mark.parametrize("case", TAKEN)
def test_a_value_is_recorded_as_the_nearest_plain_one(engine: Any, recorded: Written, case: str) -> None:
    value, written = TAKEN[case]
    with engine.mstx_range("x", given=value, next=1) as entered:
        entered.set(added=value)
    with engine.timed(engine.intern("timed"), None, {"of a dict": value}):
        pass
    engine.mark("m", given=value)

    found = [recorded.one("x").attributes["given"], recorded.one("x").attributes["added"]]
    found += [recorded.one("timed").attributes["of a dict"], recorded.marks[0].attributes["given"]]
    assert found == [written] * 4
    assert {type(one) for one in found} == {type(written)}
    assert list(recorded.one("x").attributes) == ["given", "next", "added"]
    assert engine.counters()["faults"] == engine.counters()["attributes_lost"] == sum(faults.counts.values()) == 0


@pytest.mark.parametrize("case", NOT_TAKEN)
def test_anything_else_is_its_types_name_counted_and_named_once(
    engine: Any, recorded: Written, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    value, written = NOT_TAKEN[case]
    for number in range(3):
        with engine.mstx_range("x", given=value, number=number):
            pass
    engine.mark("m", given=value)

    assert [found.attributes for found in recorded.ranges] == [{"given": written, "number": n} for n in range(3)]
    assert recorded.marks[0].attributes == {"given": written}
    assert (engine.counters()["faults"], engine.counters()["attributes_lost"]) == (0, 4)
    (message,) = caplog.messages
    assert "attribute 'given'" in message
    assert repr(written) in message


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("sNaN"), np.float16("nan"), np.timedelta64("NaT", "s")])
def test_what_is_no_number_is_nan(engine: Any, recorded: Written, value: Any) -> None:
    with engine.mstx_range("x", given=value):
        pass

    assert math.isnan(recorded.one("x").attributes["given"])


def test_an_array_is_read_at_the_end_of_the_range(engine: Any, recorded: Written) -> None:
    count = np.array(1)
    with engine.mstx_range("x", count=count):
        count += 1

    assert recorded.one("x").attributes == {"count": 2}


def test_a_range_that_is_entered_twice_has_its_values_twice(engine: Any, recorded: Written) -> None:
    held = engine.mstx_range("x", size=np.int64(1))
    for _ in range(2):
        with held as entered, held:
            entered.set(path=PurePosixPath("/a"))

    assert [found.attributes for found in recorded.ranges] == [{"size": 1, "path": "/a"}, {"size": 1}] * 2


def test_each_name_and_type_is_told_and_no_value(
    engine: Any, recorded: Written, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        with engine.mstx_range("x", a=[111], b=[222], **{"k" * 5000: (333,)}) as entered:
            entered.set(a=(444,))

    assert len(caplog.messages) == 3
    assert {"attribute 'a' of type 'tuple'", "attribute 'b' of type 'list'"} < set(faults.counts)
    assert set(faults.counts.values()) == {5}
    assert max(map(len, caplog.messages)) < 300
    assert not [text for text in caplog.messages for value in ("111", "222", "333", "444") if value in text]


def test_names_without_end_are_not_told_without_end(
    engine: Any, recorded: Written, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        with engine.mstx_range("x", **{f"key {number}": []}):
            pass

    assert len(faults.counts) == len(caplog.messages) <= 201
    assert sum(faults.counts.values()) == 1000


def test_a_range_that_has_too_many_and_not_taken_is_counted_once(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("x", **{f"k{number}": np.int64(number) for number in range(69)}, last=[]):
        pass
    with engine.mstx_range("y", first=[], **{f"k{number}": number for number in range(69)}):
        pass

    assert recorded.one("x").attributes == {f"k{number}": number for number in range(64)}
    assert recorded.one("y").attributes == {"first": "list", **{f"k{number}": number for number in range(63)}}
    assert engine.counters()["attributes_lost"] == 2


class Handler(logging.Handler):
    """What a program's own logging may do while an attribute is named."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self.act = act

    def emit(self, record: logging.LogRecord) -> None:
        self.act()

    def __enter__(self) -> None:
        logging.getLogger("mstxkit").addHandler(self)

    def __exit__(self, *error: object) -> None:
        logging.getLogger("mstxkit").removeHandler(self)


def test_others_may_use_the_range_that_ends_while_its_values_are_made_plain(engine: Any, recorded: Written) -> None:
    shared = engine.mstx_range("shared", given=[])

    def use() -> None:
        with shared, engine.mstx_range("inside"):
            recorded.tick(1)

    with engine.mstx_range("outer"):
        with Handler(lambda: elsewhere(use)), shared:
            recorded.tick(10)
        with shared:
            recorded.tick(3)

    assert recorded.open == []
    assert sorted((found.name, found.attributes.get("given")) for found in recorded.ranges) == [
        ("inside", None), ("outer", None), *[("shared", "list")] * 3
    ]  # fmt: skip
    assert [found.depth for found in recorded.ranges if found.name == "outer"] == [0]
    assert recorded.ranges[-1].name == "outer"


def test_others_may_enter_it_and_stay_in_it(engine: Any, recorded: Written) -> None:
    shared = engine.mstx_range("shared", given=[])

    with Handler(lambda: elsewhere(shared.__enter__)), shared:
        recorded.tick(1)
    open_then = [found.name for found in recorded.open]
    shared.__exit__(None, None, None)
    with engine.mstx_range("after"):
        recorded.tick(1)

    assert open_then == ["shared"]
    assert recorded.open == []
    assert [found.name for found in recorded.ranges] == ["shared", "shared", "after"]
    assert recorded.one("after").depth == 0


def test_others_may_end_it_meanwhile(engine: Any, recorded: Written) -> None:
    shared = engine.mstx_range("shared", given=[])
    with shared, Handler(lambda: elsewhere(shared.__exit__, None, None, None)):
        shared.__enter__()
        shared.__exit__(None, None, None)

    assert recorded.open == []
    assert [found.name for found in recorded.ranges] == ["shared", "shared"]


def test_recording_may_stop_meanwhile(engine: Any, recorded: Written) -> None:
    with Handler(engine.detach), engine.mstx_range("x", given=[]):
        recorded.tick(1)
    with engine.mstx_range("y", given={}):
        pass

    assert recorded.ranges == []


SCALARS = st.one_of(
    st.sampled_from([np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64]).flatmap(
        lambda kind: st.integers(int(np.iinfo(kind).min), int(np.iinfo(kind).max)).map(kind)
    ),
    st.floats(width=16).map(np.float16), st.floats(width=32).map(np.float32), st.floats().map(np.float64),
    st.booleans().map(np.bool_),
)  # fmt: skip
_SETTINGS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@given(values=st.lists(SCALARS | SCALARS.map(np.asarray), min_size=1, max_size=8))
@_SETTINGS
def test_numbers_of_numpy_are_what_numpy_says(engine: Any, recorded: Written, values: list[Any]) -> None:
    with engine.mstx_range("x", **{f"k{place}": value for place, value in enumerate(values)}):
        pass

    written = list(recorded.ranges[-1].attributes.values())
    expected = [value.item() for value in values]
    assert repr(written) == repr(expected)


class Case(NamedTuple):
    """A value by its name: Hypothesis looks at what it makes, and would spring the traps itself."""

    name: str

    @staticmethod
    def value_of(drawn: Any) -> Any:
        return {**TAKEN, **NOT_TAKEN}[drawn.name][0] if type(drawn) is Case else drawn


ANYTHING = st.one_of(
    SCALARS, st.decimals(), st.datetimes(), st.dates(), st.times(), st.timedeltas(), st.fractions(), st.uuids(),
    st.binary(max_size=9), st.complex_numbers(), st.integers(), st.text(max_size=9), st.none(),
    st.sampled_from([Case(name) for name in (*TAKEN, *NOT_TAKEN)]),
)  # fmt: skip


@given(values=st.lists(ANYTHING, max_size=9), count=st.integers(0, 9))
@_SETTINGS
def test_both_engines_write_the_same_of_any_values(both: list[Any], values: list[Any], count: int) -> None:
    written, lost, values = [], [], [Case.value_of(drawn) for drawn in values]
    for engine in both:
        to = Written(engine)
        pairs = {f"k{place}": value for place, value in enumerate(values)}
        with engine.mstx_range("x", **dict(list(pairs.items())[:count])) as entered:
            entered.set(**dict(list(pairs.items())[count:]))
        written.append(repr(to.one("x").attributes))
        lost.append(engine.counters()["attributes_lost"])

    assert written == [written[0]] * len(written)
    assert (
        lost == [lost[0]] * len(lost) == [int(any(plain_values.plain(value) is NotImplemented for value in values))] * 2
    )


def test_nothing_is_imported_and_what_comes_later_is_known(engine: Any) -> None:
    assert run_fresh(
        engine,
        """
        class Batch:
            pass

        heavy = {"numpy", "decimal", "datetime", "pathlib", "zoneinfo"}
        before = heavy & set(sys.modules)
        written = Written(engine)
        with engine.mstx_range("first", batch=Batch()):
            pass
        after = heavy & set(sys.modules)
        sys.modules["numpy"] = object()
        with engine.mstx_range("stand-in", batch=Batch()):
            pass
        del sys.modules["numpy"]
        import decimal
        import numpy
        with engine.mstx_range("later", count=numpy.int64(7), size=decimal.Decimal(1)):
            pass
        result = [before == after, "numpy" in after, [found.attributes for found in written.ranges]]
        """,
    ) == [True, False, [{"batch": "Batch"}, {"batch": "Batch"}, {"count": 7, "size": 1.0}]]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="there is no torch here")
def test_nothing_is_asked_of_a_tensor(engine: Any) -> None:
    """Whatever is done with one of these raises; the last has no value at all."""
    kinds, written, lost, names = run_fresh(
        engine,
        """
        import enum, os
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        import torch

        class Untouchable(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                raise SystemExit(f"asked for {function}")

        class Holder(enum.Enum):
            TENSOR = torch.tensor(1.0)

        tensors = {
            "scalar": torch.tensor(7), "parameter": torch.nn.Parameter(torch.ones(1)),
            "untouchable": torch.ones(()).as_subclass(Untouchable), "meta": torch.empty((), device="meta"),
        }
        written = Written(engine)
        with engine.mstx_range("x", **tensors) as entered:
            entered.set(holder=Holder.TENSOR, device=torch.device("cpu"))
        engine.mark("m", **tensors)
        result = [
            {key: type(value).__name__ for key, value in tensors.items()}, written.one("x").attributes,
            engine.counters()["attributes_lost"], sorted(faults.counts),
        ]
        """,
    )

    assert written == {**kinds, "holder": "TENSOR", "device": "device"}
    assert lost == 2
    assert len(names) == 5
