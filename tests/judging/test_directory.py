"""Who sends: hosts and their clocks, in one place, and bounded whatever they say."""

from __future__ import annotations

from typing import Any

import numpy as np
from builders import soak

from mstxkit.judging import directory
from mstxkit.judging.clock_bounds import WALL_ERROR_NS
from mstxkit.judging.directory import Directory
from mstxkit.store.batches import Batch

AT = np.array([1000], dtype=np.int64)


def batch(place: str, boot: str, number: int = 0, **head: Any) -> Batch:
    about = {"host": place, "place": place, "boot": boot, "sender": "s", "number": number, **head}
    return Batch.of(about, ())


def test_containers_of_one_kernel_have_one_clock() -> None:
    """What either of them says of it holds for both."""
    known = Directory(("here", 7))
    first, _ = known.take(batch("one", "k", clock=[1000, 9000, 500]), 1.0) or (None, None)
    second, _ = known.take(batch("two", "k", clock=[2000, 9700, 20]), 1.0) or (None, None)
    assert first is not None and second is not None

    for host in (first, second):
        times, error = known.aligned_ns(host, AT)
        assert (times.tolist(), error.tolist()) == ([1000 + 7700], [WALL_ERROR_NS + 20])


def test_hosts_that_say_no_boot_id_have_clocks_of_their_own() -> None:
    known = Directory(("here", 7))
    hosts = [known.take(batch(place, "", clock=[1, at, 1]), 1.0) for place, at in (("one", 101), ("two", 901))]

    assert [known.aligned_ns(taken[0], AT)[0][0] for taken in hosts if taken] == [1100, 1900]


def test_what_comes_after_the_wall_clock_was_set_back_was_heard_then() -> None:
    known = Directory(("here", 7))
    for number, now_s in enumerate((9000.0, 100.0)):
        taken = known.take(batch("one", "k", number), now_s)

    assert (known.heard_s, taken and taken[0].seen_s) == (100.0, 100.0)
    assert known.take(batch("one", "k", 0), 200.0) is None, "it came before"
    assert known.heard_s == 100.0


def test_a_host_that_was_started_anew_is_not_read_by_its_clock_of_before() -> None:
    known = Directory(("here", 7))
    known.take(batch("one", "before", clock=[1000, 2000, 1]), 1.0)
    host, _ = known.take(batch("one", "after", number=1, clock=[10, 5010, 900]), 2.0) or (None, None)
    assert host is not None

    assert known.aligned_ns(host, AT)[0].tolist() == [1000 + 5000]


def test_a_sender_that_names_another_kernel_each_time_grows_nothing() -> None:
    known, batches = Directory(("here", 7)), soak.rounds(20_000, 300)
    known._clocks._at_most = 50
    for number in range(batches):
        known.take(batch("one", f"k{number}", number, clock=[1000, 2000, 1]), float(number))

    assert len(known._clocks._clocks) == 50
    assert len(known.hosts) == 1
    assert known._clocks._at_most <= directory.HOSTS_AT_MOST
