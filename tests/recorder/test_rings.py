"""What of torch's ring is handed over: each entry once, on the host's clock, and never by holding training up."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest

from mstxkit import faults
from mstxkit.host import clock
from mstxkit.recorder import rings, torch_rings
from mstxkit.recorder.rings import News, Rings, RingSchedule
from mstxkit.recorder.torch_rings import GroupOfRing, TorchRing
from mstxkit.store import collectives
from mstxkit.store.collectives import DISTURBED, LEFT_AT_MOST, CollectiveEntry

MS = 1_000_000
GROUPS = {"0": GroupOfRing(7, "0", (0, 1), "gloo"), "tp": GroupOfRing(8, "tp", (0, 1), "gloo")}


def entry(record: int, sequence: int, created_ns: int = 0, group: str = "0", **more: Any) -> dict[str, Any]:
    return {
        "record_id": record, "collective_seq_id": sequence, "process_group": [group, ""], "is_p2p": False,
        "profiling_name": "gloo:barrier", "time_created_ns": created_ns or 1000 + record, **more,
    }  # fmt: skip


class FakeRing:
    """A ring whose entries a test puts in, behind a function like torch's."""

    def __init__(self, size: int = 512) -> None:
        self.size, self.entries, self.dumps, self.slowly_s = size, [], 0, 0.0

    def dump(self, with_entries: bool, only_active: bool) -> bytes:
        status = {"0": {"last_enqueued_collective": str(len(self.entries))}}
        self.dumps += with_entries
        until = time.thread_time() + self.slowly_s * with_entries
        while time.thread_time() < until:
            pass
        return json.dumps({"pg_status": status, **({"entries": self.entries} if with_entries else {})}).encode()

    def add(self, count: int) -> None:
        first = len(self.entries)
        self.entries += [entry(first + k, first + k + 1, time.time_ns()) for k in range(count)]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRing]:
    fake = FakeRing()
    monkeypatch.setattr(torch_rings, "is_set_up", lambda: True)
    monkeypatch.setattr(torch_rings, "list_groups", lambda: list(GROUPS.values()))
    monkeypatch.setattr(torch_rings, "find_rank", lambda: 0)
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", str(fake.size))
    monkeypatch.setattr(torch_rings, "find_ring", lambda: TorchRing(torch_rings.KINDS[1], fake.dump))
    yield fake
    faults.reset_counts()


class Kept:
    """What was handed over."""

    def __init__(self) -> None:
        self.rows: list[CollectiveEntry] = []
        self.document: dict[str, Any] = {}

    def put(self, rows: bytes, document: dict[str, Any]) -> None:
        self.rows += collectives.unpack_entries(rows)
        self.document = document


def asked(reading: Rings, folder: Path) -> None:
    collectives.ask_rings(folder)
    reading.consider()


def test_it_is_read_after_twenty_steps_then_every_hundred_or_minute_whichever_is_rarer() -> None:
    schedule = RingSchedule()
    read_at = []
    for second in range(400):
        if schedule.is_due(5 + second, float(second)):
            schedule.was_read(5 + second, float(second))
            read_at.append(second)
    quick = RingSchedule()
    quick.is_due(0, 0.0)
    quick.was_read(20, 1.0)

    assert read_at == [20, 120, 220, 320]
    assert not quick.is_due(5000, 60.0)
    assert quick.is_due(5000, 61.5)


def test_where_steps_are_not_counted_it_is_read_every_minute() -> None:
    schedule = RingSchedule()

    assert [second for second in range(61) if schedule.is_due(None, float(second))] == [60]


def test_each_entry_is_handed_over_once(ring: FakeRing, tmp_path: Path) -> None:
    kept = Kept()
    reading = Rings(tmp_path, kept.put)
    ring.add(5)
    asked(reading, tmp_path)
    ring.add(3)
    asked(reading, tmp_path)
    reading.consider()
    reading.finish()

    assert [row.sequence for row in kept.rows] == list(range(1, 9))
    assert kept.document["groups"]["7"] == {"name": "0", "ranks": "0-1", "backend": "gloo"}
    assert abs(kept.rows[-1].entered_ns - time.monotonic_ns()) < 60_000 * MS


def test_nobody_asks_twice_by_asking_once(ring: FakeRing, tmp_path: Path) -> None:
    collectives.ask_rings(tmp_path)  # before this process began
    reading = Rings(tmp_path, Kept().put)
    reading.consider()
    before = ring.dumps
    asked(reading, tmp_path)
    reading.consider()

    assert (before, ring.dumps) == (0, 1)


def test_what_may_have_been_held_up_by_a_reading_says_so(ring: FakeRing, tmp_path: Path) -> None:
    kept = Kept()
    reading = Rings(tmp_path, kept.put)
    ring.add(2)
    asked(reading, tmp_path)
    ring.add(3)
    asked(reading, tmp_path)

    assert [row.flags & DISTURBED for row in kept.rows] == [0, 0, 1, 0, 0]


def test_a_ring_too_long_to_be_read_is_not_read_and_it_is_said_why(ring: FakeRing, tmp_path: Path) -> None:
    kept = Kept()
    reading = Rings(tmp_path, kept.put)
    reading._entry_ns = 31 * MS / 100
    ring.add(100)
    asked(reading, tmp_path)

    assert ring.dumps == 0
    assert "512 entries would hold training up for 31 ms" in kept.document["why_not"]
    assert "TORCH_FR_BUFFER_SIZE=64 before the job" in kept.document["why_not"], "30 ms suffice for 96"
    assert "rings=True" not in kept.document["why_not"], "that is how it came to have 512"


def test_after_a_reading_that_took_too_long_it_is_read_half_as_often(ring: FakeRing, tmp_path: Path) -> None:
    reading = Rings(tmp_path, Kept().put)
    ring.slowly_s = (rings.TOO_LONG_MS + 5) / 1000
    ring.add(60)
    asked(reading, tmp_path)
    asked(reading, tmp_path)

    assert reading._schedule.every_s == 120
    assert ring.dumps == 1  # 60 entries as slow as those are not read again


def test_what_was_stamped_before_the_clock_was_set_is_left_out(
    ring: FakeRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept()
    reading = Rings(tmp_path, kept.put)
    ring.add(2)
    asked(reading, tmp_path)
    half_ns, mono_ns, wall_ns = clock.ask_both()
    monkeypatch.setattr(clock, "ask_both", lambda: (half_ns, mono_ns, wall_ns + 5000 * MS))
    ring.add(2)
    asked(reading, tmp_path)
    ring.add(1)
    asked(reading, tmp_path)

    assert [row.sequence for row in kept.rows] == [1, 2, 5]


def test_a_forked_child_hands_over_nothing_of_its_parents(ring: FakeRing, tmp_path: Path) -> None:
    kept = Kept()
    reading = Rings(tmp_path, kept.put, inherits_groups=True)
    ring.add(3)
    asked(reading, tmp_path)
    reading.finish()

    assert (kept.rows, ring.dumps) == ([], 0)


def test_after_the_groups_are_gone_only_a_ring_without_events_is_read(
    ring: FakeRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"gloo": Kept(), "nccl": Kept()}
    for backend, of_it in kept.items():
        groups = [GroupOfRing(7, "0", (0, 1), backend)]
        monkeypatch.setattr(torch_rings, "list_groups", lambda groups=groups: groups)
        monkeypatch.setattr(torch_rings, "is_set_up", lambda: True)
        reading = Rings(tmp_path, of_it.put)
        reading.consider()
        ring.add(1)
        monkeypatch.setattr(torch_rings, "is_set_up", lambda: False)
        reading.finish()

    assert (len(kept["gloo"].rows), len(kept["nccl"].rows)) == (1, 0)


def test_a_fault_turns_it_off_and_reaches_nobody(ring: FakeRing, tmp_path: Path) -> None:
    def broken(with_entries: bool, only_active: bool) -> bytes:
        ring.dumps += 1
        raise RuntimeError("torch has changed")

    reading = Rings(tmp_path, Kept().put)
    reading._ring = TorchRing(torch_rings.KINDS[1], broken)
    faults.reraise = False
    asked(reading, tmp_path)
    asked(reading, tmp_path)

    assert (ring.dumps, faults.counts["rings"]) == (1, 1)


def test_only_first_entries_into_collectives_of_known_groups_are_news() -> None:
    news = News()
    new = news.of(
        [
            entry(0, 1),
            entry(1, 1, profiling_name="nccl:second operation of one launch"),
            entry(2, 2, is_p2p=True),
            entry(3, 2, group="gone"),
            entry(4, 1, group="tp"),
            entry(5, 2),
        ],
        GROUPS, 0, 10**18,
    )  # fmt: skip

    assert [(row.group, row.sequence) for row in new] == [(7, 1), (8, 1), (7, 2)]


def test_a_ring_that_was_reset_goes_on_from_its_new_beginning() -> None:
    news = News()
    first = list(news.of([entry(0, 1), entry(1, 2)], GROUPS, 0, 10**18))
    again = list(news.of([entry(0, 3, 5000), entry(1, 4, 5001)], GROUPS, 0, 10**18))

    assert [row.sequence for row in first + again] == [1, 2, 3, 4]


def test_an_end_is_known_where_the_watchdog_saw_it_before_the_reading() -> None:
    over = [entry(0, 1, 1000, time_discovered_completed_ns=1500), entry(1, 2, 2000, time_discovered_completed_ns=9000)]
    rows = list(News().of(over, GROUPS, 0, began_ns=5000))

    assert [(row.left_ns, row.flags) for row in rows] == [(1500, LEFT_AT_MOST), (0, 0)]


@pytest.mark.parametrize(
    "content", [b"[]", b"{}", b'{"entries": 3, "pg_status": 4}', b'{"entries": [1, {}], "pg_status": {"0": {"a": 1}}}']
)
def test_a_ring_of_another_form_has_no_news(content: bytes) -> None:
    ring = TorchRing(torch_rings.KINDS[1], lambda *_: content)

    assert ring.count() == 0
    assert list(News().of(ring.read().entries, GROUPS, 0, 10**18)) == []


@pytest.mark.parametrize(
    ("name", "operation"),
    [("gloo:all_reduce", "all_reduce"), ("nccl:_reduce_scatter_base", "reduce_scatter"),
     ("nccl:ALLTOALL", "all_to_all"), ("hccl:barrier", "barrier"), ("x:unheard", "other")],
)  # fmt: skip
def test_operations_are_known_by_whatever_their_backend_calls_them(name: str, operation: str) -> None:
    assert collectives.OPERATIONS[torch_rings.number_operation(name)] == operation


def test_sizes_are_of_what_goes_in() -> None:
    sizes = {"input_sizes": [[1000], [3, 5]], "input_dtypes": ["Float", "BFloat16"]}

    assert torch_rings.size_kib(sizes) == 4
    assert torch_rings.size_kib({"input_sizes": [["x"]], "input_dtypes": ["Float"]}) == 0
    assert torch_rings.size_kib({}) == 0


class TestVariables:
    """Rings are switched on only where nobody else has decided."""

    def test_both_rings_are_on_where_nothing_is_set(self) -> None:
        assert torch_rings.pick_variables(1, {}) == {
            "TORCH_FR_BUFFER_SIZE": "512",
            "TORCH_HCCL_TRACE_BUFFER_SIZE": "512",
        }
        assert torch_rings.pick_variables(64, {})["TORCH_FR_BUFFER_SIZE"] == "64"

    @pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
    def test_what_a_user_has_set_stays(self, name: str) -> None:
        assert torch_rings.pick_variables(1, {name: "0"}) == {"TORCH_HCCL_TRACE_BUFFER_SIZE": "512"}

    def test_it_is_said_where_it_comes_too_late(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(is_initialized=lambda: True))
        monkeypatch.setattr(faults, "_said", set())

        assert torch_rings.pick_variables(1, {}) == {}
        assert "comes after the process group was made" in caplog.text


def test_groups_of_one_name_in_two_worlds_have_two_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def numbers(port: int) -> list[int]:
        world = SimpleNamespace(pg_names={"a": "0"}, pg_group_ranks={"a": {0: 0, 1: 1}}, pg_map={"a": ("gloo", None)})
        store = SimpleNamespace(underlying_store=SimpleNamespace(host="node7", port=port))
        c10d = SimpleNamespace(_world=world, _get_default_store=lambda: store)
        monkeypatch.setitem(sys.modules, torch_rings._C10D, c10d)
        return [group.number for group in torch_rings.list_groups()]

    assert numbers(1) == numbers(1) != numbers(2)


def sent(record: int, name: str, created_ns: int = 0) -> dict[str, Any]:
    return entry(record, 0, created_ns, p2p_seq_id=9) | {"is_p2p": True, "profiling_name": name}


def test_what_python_called_is_not_told_once_more_and_what_was_called_beside_it_is() -> None:
    """DDP's reducer and a metric's all-reduce in one group: the ring has both."""
    news = News()
    news.called([(7, False, 1500), (7, True, 1690), (8, False, 1690)])
    rows = list(news.of([entry(0, 1, 1400), entry(1, 2, 1600), entry(2, 3, 1700)], GROUPS, 0, 10_000))

    assert [row.sequence for row in rows] == [1, 3]


def test_sends_and_receives_of_a_ring_are_counted_for_each_pair_and_direction() -> None:
    news, names = News(), ("nccl:send 0->1", "nccl:recv 0<-1", "nccl:send 0->1", "hccl:recv 0 <- 1")
    rows = list(news.of([sent(at, name) for at, name in enumerate(names)], GROUPS, 0, 10_000))
    of_pair = {pair.number: pair.ranks for pair in news.pairs.values()}

    does = [collectives.OPERATIONS[row.operation] for row in rows]
    assert [(of_pair[row.group], row.sequence, name) for row, name in zip(rows, does)] == [
        ((0, 1), 0, "send"), ((1, 0), 0, "recv"), ((0, 1), 1, "send"), ((1, 0), 1, "recv"),
    ]  # fmt: skip
    assert all(collectives.ranks_in(pair.as_json()["ranks"]) == pair.ranks for pair in news.pairs.values())


@pytest.mark.parametrize("first", [1, 5], ids=["from the beginning", "in between"])
def test_where_a_ring_has_lost_any_nobody_knows_which_send_of_its_pair_one_is(first: int) -> None:
    news = News()
    rows = list(news.of([sent(0, "nccl:send 0->1")] * (first == 5), GROUPS, 0, 10_000))
    rows += news.of([sent(first, "nccl:send 0->1"), entry(first + 1, 1)], GROUPS, 0, 10_000)

    assert [collectives.OPERATIONS[row.operation] for row in rows] == ["send"] * (first == 5) + ["barrier"]


def test_who_sends_and_what_does_not_say_so_is_left_out() -> None:
    assert torch_rings.pair_in("gloo:send", (0, 1)) is None
    assert torch_rings.pair_in("nccl:send 0->2", (4, 8)) is None
    assert torch_rings.pair_in("nccl:recv 1<-0", (4, 8)) == (4, 8)


@pytest.mark.parametrize("ranks", [(0,), (0, 1, 2)])
def test_a_group_of_which_nobody_says_how_it_is_carried_is_still_a_group(ranks: tuple[int, ...]) -> None:
    """As those of a rollout engine in verl's workers; only a sender and a receiver are a pair."""
    assert GroupOfRing(7, "tp", ranks, "").as_json()["ranks"] == collectives.ranks_as_text(ranks)
    assert torch_rings.pair_of(GroupOfRing(7, "pp", (3, 5), "gloo"), 5, 3, 0).as_json() == {"ranks": "5>3"}
