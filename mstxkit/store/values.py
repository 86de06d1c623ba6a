"""Values out of JSON that nobody vouches for, as what tables and files can hold."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, TypeVar

from .records import NO_STEP

Key = TypeVar("Key")
Item = TypeVar("Item")
# Whatever a field holds, as what it should be.
Reader = Callable[[Any], Item]

# With room for what is made of them: a time in other units, a sum.
_FINITE_AT_MOST = 1e150


def whole_number(value: Any) -> int:
    """A number from 0 to 2^63 - 1; 0 for anything else."""
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else 0


def small_number(value: Any) -> int | None:
    """A number from 0 to 2^31 - 1; None for anything else."""
    return int(value) if isinstance(value, int) and 0 <= value < 1 << 31 else None


def step_number(value: Any) -> int | None:
    """A step as records hold it, from 0 to 2^32 - 2; None for anything else."""
    return int(value) if isinstance(value, int) and 0 <= value < NO_STEP else None


def count_of(value: Any) -> int:
    """As `small_number`; 0 for anything else."""
    return small_number(value) or 0


def small_numbers(value: Any) -> tuple[int, ...]:
    """The numbers from 0 to 2^31 - 1 in a list."""
    return tuple(number for number in map(small_number, list_of(value)) if number is not None)


def finite_number(value: Any) -> float | None:
    """A number that a float holds with room to spare; None for anything else: JSON has infinite and endless ones."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < _FINITE_AT_MOST else None


def text_of(value: Any) -> str:
    """A text or number as text that any encoder takes; "" for anything else."""
    if isinstance(value, (str, int)):
        return str(value).encode("utf-8", "backslashreplace").decode()
    return ""


def is_true(value: Any) -> bool:
    """Is it true, and not only as good as that?"""
    return value is True


def list_of(value: Any) -> list[Any]:
    """A list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def table_of(value: Any) -> Mapping[str, Any]:
    """An object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def short_text(at_most: int) -> Reader[str]:
    """`text_of`, so many characters of it."""
    return lambda value: text_of(value)[:at_most]


def list_with(read: Reader[Item], at_most: int) -> Reader[tuple[Item, ...]]:
    """The items of a list, so many of them, each read so."""
    return lambda value: tuple(map(read, list_of(value)[:at_most]))


def table_with(read: Reader[Item]) -> Reader[dict[str, Item]]:
    """The values of an object by their names, each read so."""
    return lambda value: {text_of(name): read(of_name) for name, of_name in table_of(value).items()}


def record_with(kind: Callable[..., Item], names: Mapping[Reader[Any], str], **readers: Reader[Any]) -> Reader[Item]:
    """What `kind` makes of fields of an object. `names`: with each reader those that it reads, by blanks."""
    readers |= {name: read for read, those in names.items() for name in those.split()}
    return lambda value: kind(**{name: read(table_of(value).get(name)) for name, read in readers.items()})


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Those with equal keys together, in the order of the first of each."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def write_spans(numbers: Iterable[int], dash: str = "-") -> list[str]:
    """`["0", "2-7"]`: whole numbers in order, each run of them as its first and its last."""
    if isinstance(numbers, range) and numbers.step == 1 and len(numbers) > 1:
        return [f"{numbers[0]}{dash}{numbers[-1]}"]  # not one by one: where any rank may be named, these are billions
    there = set(numbers)
    firsts, lasts = (sorted(number for number in there if number + step not in there) for step in (-1, 1))
    return [str(first) if first == last else f"{first}{dash}{last}" for first, last in zip(firsts, lasts)]


def forget_oldest(entries: dict[Any, Any], at_most: int) -> None:
    """Leave so many entries of a dict, those that were put there last."""
    while len(entries) > at_most:
        del entries[next(iter(entries))]
