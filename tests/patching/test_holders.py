"""Whoever held a function before it was patched: equal, found in tables and pickled as before, and given back."""

from __future__ import annotations

import concurrent.futures
import gc
import multiprocessing
import pickle
import sys
import threading
from typing import Any, Callable

import pytest
from builders.holding import HOLDERS

from mstxkit.patching import registry
from mstxkit.testing import captured

SOURCE = "def gae(x):\n    return x + 1\nclass Trainer:\n    def update(self, x): return x\n"
PATHS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "function": ("ACME.adv:gae", lambda module: module.gae),
    "method": ("ACME.adv:Trainer.update", lambda module: module.Trainer.update),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", HOLDERS)
def test_a_holder_has_what_the_place_has_and_the_very_original_afterwards(
    acme: Any, install: Any, kind: str, path: str
) -> None:
    acme.write("adv", SOURCE)
    module = acme.load("adv")
    target, look_up = PATHS[path]
    original, holder = look_up(module), HOLDERS[kind].make(look_up(module))
    shown = repr(holder).replace(hex(id(original)), "")

    install(acme.patch(target))
    held, there = HOLDERS[kind].get(holder), look_up(module)
    copy = pickle.loads(pickle.dumps(held))
    registry.remove_patches()

    assert held is there is copy
    assert there is not original
    assert HOLDERS[kind].get(holder) is original is look_up(module)
    assert repr(holder).replace(hex(id(original)), "") == shown


def test_calls_through_a_registry_are_ranges(acme: Any, install: Any) -> None:
    acme.write("adv", SOURCE + "REGISTRY = {'gae': gae}\n")
    module = acme.load("adv")
    install(acme.patch("ACME.adv:gae"))

    with captured() as recorded:
        assert module.REGISTRY["gae"](1) == 2

    assert [one.name for one in recorded.ranges] == ["gae"]


def test_a_table_keyed_by_functions_knows_them_while_its_module_is_imported(acme: Any, install: Any) -> None:
    acme.write("adv", SOURCE + "COSTS = {len: 0, gae: 1, Trainer.update: 2, print: 3}\n")
    install(acme.patch("ACME.adv:gae", "ACME.adv:Trainer.update"))
    module = acme.load("adv")

    assert [module.COSTS[one] for one in (len, module.gae, module.Trainer.update, print)] == [0, 1, 2, 3]
    assert list(module.COSTS.values()) == [0, 1, 2, 3]


def test_a_copy_that_was_stored_while_patched_is_the_original_afterwards(acme: Any, install: Any) -> None:
    acme.write("adv", SOURCE)
    module = acme.load("adv")
    original = module.gae
    install(acme.patch("ACME.adv:gae"))
    kept = {"later": [module.gae]}

    registry.remove_patches()

    assert kept["later"][0] is original
    assert pickle.loads(pickle.dumps(kept))["later"][0] is original


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_pool_of_processes_takes_what_a_registry_holds(acme: Any, install: Any) -> None:
    acme.write("adv", SOURCE + "REGISTRY = {'gae': gae}\n")
    module = acme.load("adv")
    install(acme.patch("ACME.adv:gae"))

    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        assert pool.submit(module.REGISTRY["gae"], 1).result(timeout=60) == 2


def test_what_wraps_a_function_beneath_ours_goes_on_holding_it(acme: Any, install: Any) -> None:
    """Of two layers of ours, a decision and a range, each keeps what it is around."""
    acme.write("adv", SOURCE)
    module = acme.load("adv")
    held = [module.gae]
    install(acme.patch(acme.target("ACME.adv:gae", kind="around", value=f"{__name__}:decides")))

    with captured() as recorded:
        assert held[0](1) == module.gae(1) == 20

    assert [one.name for one in recorded.ranges] == ["gae", "gae"]


def decides(upstream: Any, x: int) -> int:
    return int(upstream(x)) * 10


def test_nobody_is_looked_for_where_nobody_holds_one(acme: Any, install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk over all objects takes tens of milliseconds."""
    walks: list[Any] = []
    monkeypatch.setattr(gc, "get_referrers", lambda *objects: walks.append(objects) or [])
    acme.write(
        "adv",
        SOURCE + "class S:\n @staticmethod\n def s(): 1\n @classmethod\n def c(cls): 1\n @property\n def p(self): 1\n",
    )
    acme.write("user", "from ACME.adv import gae as mine")
    acme.load("user")

    install(acme.patch("ACME.adv:gae", "ACME.adv:Trainer.*", "ACME.adv:S.*", "ACME.adv:S.p"))
    registry.remove_patches()

    assert walks == []


def test_a_holder_that_others_change_meanwhile_loses_nothing(acme: Any, install: Any) -> None:
    acme.write("adv", SOURCE)
    module = acme.load("adv")
    table: dict[Any, Any] = {module.gae: "gae"}
    stop = threading.Event()

    def fill() -> None:
        number = 0
        while not stop.is_set() and number < 20_000:
            number += 1
            table[number] = number

    filling = threading.Thread(target=fill)
    filling.start()
    install(acme.patch("ACME.adv:gae"))
    stop.set()
    filling.join()

    numbers = [key for key in table if isinstance(key, int)]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert table[module.gae] == "gae"
