"""Reads Parquet files with changed bytes, in a process that may die: `-m builders.parquet_fuzz SEED COUNT`.

It prints the number of each file before it is read, and how many were read and refused at the end.
"""

from __future__ import annotations

import io
import random
import resource
import sys
from collections import Counter

import polars as pl

from mstxkit.errors import FormatError
from mstxkit.reading import parquet

ROWS, KINDS = 300, 7
MEMORY_BYTES = 6 << 30


def file_of(seed: int) -> bytes:
    """A file with texts, numbers, nulls, truths and lists."""
    chance = random.Random(seed)
    rows = [
        {
            "process": f"host-{chance.randrange(2)}", "start_ns": chance.randrange(10**18),
            "duration_ns": chance.choice([None, chance.randrange(10**9)]), "name": chance.choice(["a", "bb" * 20, "ü"]),
            "attributes": chance.choice([None, f'{{"x":{chance.randrange(99)}}}']), "open": chance.random() < 0.5,
            "buckets": [chance.randrange(900) for _ in range(chance.randrange(4))],
        }
        for _ in range(ROWS)
    ]  # fmt: skip
    content = io.BytesIO()
    frame = pl.DataFrame(rows, schema_overrides={"buckets": pl.List(pl.UInt16)})
    frame.write_parquet(content, compression="zstd", statistics=True)
    return content.getvalue()


def changed(content: bytes, chance: random.Random) -> bytes:
    """Cut, or some bytes of it are others, more often in its footer."""
    made = bytearray(content)
    if chance.random() < 0.1:
        return bytes(made[: chance.randrange(len(made))])
    footer = len(made) - 8 - int.from_bytes(made[-8:-4], "little")
    first = footer if chance.random() < 0.5 else 0
    for _ in range(chance.randrange(1, 6)):
        at, size = chance.randrange(first, len(made)), chance.choice([1, 1, chance.randrange(1, 9)])
        made[at : at + size] = chance.choice([b"\xff", b"\x80", b"\0", chance.randbytes(1)]) * size
    return bytes(made)


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def main() -> None:
    """As above."""
    seed, count = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    files = [file_of(kind) for kind in range(KINDS)]
    outcomes: Counter[str] = Counter()
    for number in range(count):
        content = changed(files[number % KINDS], random.Random(f"{seed} {number}"))
        _say(number)
        try:
            parquet.read_file(io.BytesIO(content)).to_dicts()
            outcomes["read"] += 1
        except FormatError:
            outcomes["refused"] += 1
    _say(dict(outcomes))


if __name__ == "__main__":
    main()
