"""Thousands of mutated runs: the reader raises only its own errors, and no sealed row is altered or invented."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Callable

import pytest
from builders import soak
from builders.run_files import BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.errors import MstxkitError
from mstxkit.reading.run import open_run
from mstxkit.store import livefile, segment

Mutation = Callable[[random.Random, bytearray], bytearray]
COLUMNS = ("pid", "name", "start_ns", "duration_ns", "step", "stage", "attributes")


def a_run(folder: Path) -> Path:
    """Two sealed processes, one with what was open at its end, and one that was killed."""
    run = new_run(folder)
    for pid in (41, 42):
        process = ProcessFiles(run, pid, rank=pid - 41)
        banks = [
            BankFiles(seq)
            .range("a", seq * 100, seq * 100 + 5, step=seq, n=seq)
            .range("b", seq * 100 + 6, seq * 100 + 9)
            for seq in (1, 2, 3)
        ]
        process.seal(*banks[:2], ended=None)
        inside = [{"name": "open", "domain": "default", "stage": None, "own_stage": False, "step": 1, "track": 0,
                   "depth": 0, "start": 900, "tid": 1}]  # fmt: skip
        process.seal(banks[2], inside=inside, ended="killed" if pid == 42 else "exit")
    left = BankFiles(1).range("left", 5, 6)
    slots = (livefile.Slot(9, left.site("inside"), 0, 1, 0, 0, 1),)
    ProcessFiles(run, 43, rank=2).live(left, slots=slots, bank_bytes=4096)
    return run


def flipped(random_: random.Random, data: bytearray) -> bytearray:
    for _ in range(random_.choice([1, 1, 2, 8])):
        data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
    return data


def overwritten(random_: random.Random, data: bytearray) -> bytearray:
    at, size = random_.randrange(len(data)), random_.randrange(1, 64)
    data[at : at + size] = random_.randbytes(min(size, len(data) - at))
    return data


def cut(random_: random.Random, data: bytearray) -> bytearray:
    return data[: random_.randrange(len(data))]


def shortened(random_: random.Random, data: bytearray) -> bytearray:
    at = random_.randrange(len(data))
    del data[at : at + random_.randrange(1, 200)]
    return data


def lengthened(random_: random.Random, data: bytearray) -> bytearray:
    at = random_.randrange(len(data))
    data[at:at] = random_.randbytes(random_.randrange(1, 200))
    return data


def repeated(random_: random.Random, data: bytearray) -> bytearray:
    at, to = random_.randrange(len(data)), random_.randrange(len(data))
    data[to:to] = data[at : at + random_.randrange(1, 600)]
    return data


def zeroed(random_: random.Random, data: bytearray) -> bytearray:
    at, size = random_.randrange(len(data)), random_.randrange(1, 600)
    data[at : at + size] = bytes(len(data[at : at + size]))
    return data


def shuffled(random_: random.Random, data: bytearray) -> bytearray:
    """Whole blocks in another order, some of them twice: each is as it was written."""
    pieces = bytes(data).split(segment.BLOCK_MAGIC)
    blocks = [segment.BLOCK_MAGIC + piece for piece in pieces[1:]]
    chosen = random_.choices(blocks, k=len(blocks) + 1) if blocks else []
    return bytearray(pieces[0] + b"".join(chosen))


MUTATIONS: tuple[Mutation, ...] = (flipped, overwritten, cut, shortened, lengthened, repeated, zeroed, shuffled)


def rows_of(run: Path) -> Counter[Any]:
    """All tables once; the rows of one of them."""
    opened = open_run(run)
    opened.marks(), opened.stages(), opened.processes(), opened.tracks()
    return Counter(opened.ranges().select(COLUMNS).rows())


def files_of(run: Path) -> list[Path]:
    return [*sorted((run / "sealed").iterdir()), *sorted((run / "live").iterdir()), *run.parent.glob("*.live")]


def test_no_mutated_run_raises_and_no_sealed_row_is_altered_or_invented(tmp_path: Path) -> None:
    pristine = tmp_path / "pristine"
    pristine.mkdir()
    good = rows_of(a_run(pristine / "run"))
    sealed_pids = {41, 42}
    random_ = random.Random(soak.seed())
    seen: Counter[str] = Counter()

    for number in range(soak.rounds(5000, 60)):
        folder = tmp_path / "mutated"
        shutil.copytree(pristine, folder)
        for path in (folder / "run/live").iterdir():  # its live file lies in the copy
            path.write_text(path.read_text().replace(str(pristine), str(folder)))
        mutated = random_.choice(files_of(folder / "run"))
        mutation = random_.choice(MUTATIONS)
        mutated.write_bytes(mutation(random_, bytearray(mutated.read_bytes())))
        try:
            rows = rows_of(folder / "run")
        except MstxkitError:
            rows = Counter()
        sealed = Counter({row: count for row, count in rows.items() if row[0] in sealed_pids})
        assert not sealed - good, (number, mutated.name, mutation.__name__)
        seen[mutation.__name__] += bool(sealed) and sealed != good
        shutil.rmtree(folder)

    assert set(seen) == {mutation.__name__ for mutation in MUTATIONS} or not soak.is_soaking()
    assert sum(seen.values()), "some mutation loses a row"
