"""Patching a framework: applied or reported, once, before and after its import, and put back."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
import sys
import threading
from typing import Any

import pytest
from builders.forked_child import in_child

from mstxkit import Patch, mstx_timer, step
from mstxkit.engine.choose import engine
from mstxkit.patching import entry, registry
from mstxkit.patching.report import REASONS, Reason
from mstxkit.testing import captured

TRAINER = '''
import functools
LIMIT = 7
def loss(batch, *, scale=2):
    """Loss of a batch."""
    return len(batch) * scale
class Base:
    def warm(self): return "warm"
class Trainer(Base):
    marked = None
    def __init__(self): self.iteration = 4
    def update(self, batch, lr=0.1):
        """One update."""
        if batch is None: raise ValueError("no batch")
        return loss(batch)
    update.MAGIC = {"dispatch": 3}
    async def generate(self, n): return n + 1
    def stream(self, n):
        yield from range(n)
    async def astream(self, n):
        for i in range(n): yield i
    @staticmethod
    def pure(x): return x * 2
    @classmethod
    def make(cls): return cls()
    @property
    def size(self): return 11
    again = update
class Derived(Trainer):
    borrowed = Trainer.update
'''


def rows(recorded: Any) -> list[tuple[Any, ...]]:
    return [(one.name, one.stage) for one in recorded.ranges]


def names(recorded: Any) -> list[str]:
    return [one.name for one in recorded.ranges]


CONTEXT = "from contextlib import contextmanager\n@contextmanager\n"


def load(acme: Any, install: Any, when: str, *targets: Any, **fields: Any) -> tuple[Any, dict[str, Any]]:
    """Import `trainer` before or after patching; the module and the states."""
    return loaded("trainer", TRAINER, acme, install, when, *targets, **fields), install()


def loaded(name: str, text: str, acme: Any, install: Any, when: str, *targets: Any, **fields: Any) -> Any:
    """A module with this text, imported before or after patching."""
    acme.write(name, text)
    module = acme.load(name) if when == "after import" else None
    install(acme.patch(*targets, **fields))
    return module or acme.load(name)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("update", lambda t: t.update([1, 2])),
        ("generate", lambda t: asyncio.run(t.generate(1))),
        ("stream", lambda t: list(t.stream(3))),
        ("pure", lambda t: t.pure(4)),
        ("make", lambda t: type(t.make()).__name__),
        ("size", lambda t: t.size),
    ],
)
def test_a_method_of_any_kind_becomes_one_range_and_gives_what_it_gave(
    acme: Any, install: Any, when: str, call: str, expected: Any
) -> None:
    acme.write("plain", TRAINER)
    plain = expected(acme.load("plain").Trainer())
    module, states = load(acme, install, when, f"ACME.trainer:Trainer.{call}")

    with captured() as recorded:
        given = expected(module.Trainer())

    assert given == plain
    assert names(recorded) == [f"Trainer.{call}"]
    assert states[f"Trainer.{call}"].state == "applied"


def test_an_async_generator_stays_one(acme: Any, install: Any, when: str) -> None:
    module, _ = load(acme, install, when, "ACME.trainer:Trainer.astream")

    async def run() -> list[int]:
        return [i async for i in module.Trainer().astream(3)]

    with captured() as recorded:
        assert asyncio.run(run()) == [0, 1, 2]

    assert names(recorded) == ["Trainer.astream"]
    assert inspect.isasyncgenfunction(module.Trainer.astream)


def test_a_name_copied_before_patching_is_replaced_too_and_put_back(acme: Any, install: Any, when: str) -> None:
    acme.write("user", "from ACME.trainer import loss as cost\ndef use(b): return cost(b)")
    module, _ = load(acme, install, "after import" if when == "after import" else when, "ACME.trainer:loss")
    user = acme.load("user")
    wrapped = module.loss

    with captured() as recorded:
        assert user.use([1]) == 2

    assert names(recorded) == ["loss"]
    assert user.cost is wrapped
    registry.remove_patches()
    assert user.cost is module.loss is wrapped.__wrapped__


def test_a_copy_made_before_patching_is_found(acme: Any, install: Any) -> None:
    acme.write("trainer", TRAINER)
    acme.write("user", "from ACME.trainer import loss as cost")
    user, module = acme.load("user"), acme.load("trainer")
    original = module.loss

    install(acme.patch("ACME.trainer:loss"))

    assert user.cost is module.loss is not original
    registry.remove_patches()
    assert user.cost is module.loss is original


def test_a_module_in_a_circular_import_has_its_copy_replaced(acme: Any, install: Any) -> None:
    acme.write("trainer", "def loss(b): return 1\nimport ACME.user")
    acme.write("user", "from ACME.trainer import loss")

    install(acme.patch("ACME.trainer:loss"))
    module = acme.load("trainer")

    assert acme.load("user").loss is module.loss
    assert hasattr(module.loss, "__wrapped__")


def test_aliases_of_a_method_in_its_class_and_derived_ones_are_replaced(acme: Any, install: Any, when: str) -> None:
    module, _ = load(acme, install, when, "ACME.trainer:Trainer.update")

    assert module.Trainer.again is module.Trainer.update is module.Derived.__dict__["borrowed"]
    registry.remove_patches()
    assert module.Trainer.again is module.Trainer.update is module.Derived.__dict__["borrowed"]
    assert not hasattr(module.Trainer.update, "__wrapped__")


def test_an_inherited_method_is_patched_where_it_is_named_and_taken_away_again(acme: Any, install: Any) -> None:
    module, states = load(acme, install, "after import", "ACME.trainer:Trainer.warm")

    with captured() as recorded:
        assert module.Trainer().warm() == module.Base().warm() == "warm"

    assert names(recorded) == ["Trainer.warm"]
    assert states["Trainer.warm"].state == "applied"
    registry.remove_patches()
    assert "warm" not in vars(module.Trainer)


def test_patching_twice_is_once(acme: Any, install: Any, when: str) -> None:
    module, _ = load(acme, install, when, "ACME.trainer:Trainer.update")
    wrapped = module.Trainer.update
    install(acme.patch("ACME.trainer:Trainer.update"))

    with captured() as recorded:
        module.Trainer().update([1])

    assert module.Trainer.update is wrapped
    assert names(recorded) == ["Trainer.update"]


def test_two_threads_that_patch_while_a_third_imports_patch_once(acme: Any, install: Any) -> None:
    acme.write("trainer", "import time\ntime.sleep(0.2)\n" + TRAINER)
    patch = acme.patch("ACME.trainer:Trainer.update", "ACME.trainer:loss")
    threads = [threading.Thread(target=acme.load, args=("trainer",))]
    threads += [threading.Thread(target=install, args=(patch,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    module = acme.load("trainer")

    with captured() as recorded:
        module.Trainer().update([1])

    assert sorted(names(recorded)) == ["Trainer.update", "loss"]
    assert not hasattr(module.loss.__wrapped__, "__wrapped__")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("class Trainer: pass", Reason.ABSENT),
        ("", Reason.ABSENT),
        ("class Trainer:\n def optimise(self): pass", Reason.ABSENT),
        ("class Trainer:\n update = len", Reason.NOT_PATCHABLE),
        ("class Trainer:\n update = str.upper", Reason.NOT_PATCHABLE),
        ("class Trainer:\n __slots__ = ('update',)", Reason.NOT_PATCHABLE),
        ("class Trainer:\n update = 3", Reason.NOT_PATCHABLE),
        ("class Trainer:\n class update: pass", Reason.NOT_PATCHABLE),
        ("Trainer = 7", Reason.NOT_PATCHABLE),
        ("def Trainer(): pass", Reason.NOT_PATCHABLE),
        ("def __getattr__(name): raise RuntimeError('lazily')", Reason.FAILED),
    ],
)
def test_a_target_that_is_not_there_or_cannot_be_replaced_is_reported_and_harms_nothing(
    acme: Any, install: Any, when: str, source: str, reason: str
) -> None:
    acme.write("trainer", source + "\ndef loss(b): return 5")
    module = acme.load("trainer") if when == "after import" else None
    install(acme.patch("ACME.trainer:Trainer.update", "ACME.trainer:loss"))
    module = module or acme.load("trainer")

    states = install()
    assert (states["Trainer.update"].state != "applied") and states["Trainer.update"].reason == reason
    assert states["loss"].state == "applied"
    assert module.loss(0) == 5


def test_what_became_a_property_or_async_is_patched_as_what_it_is(acme: Any, install: Any, when: str) -> None:
    acme.write("trainer", "class T:\n @property\n def update(self): return 1\n async def run(self): return 2")
    module = acme.load("trainer") if when == "after import" else None
    install(acme.patch("ACME.trainer:T.update", "ACME.trainer:T.run"))
    module = module or acme.load("trainer")

    with captured() as recorded:
        assert (module.T().update, asyncio.run(module.T().run())) == (1, 2)

    assert names(recorded) == ["T.update", "T.run"]


def test_every_state_that_is_not_applied_has_one_of_the_known_reasons(acme: Any, install: Any) -> None:
    acme.write("trainer", TRAINER)
    targets = [
        acme.target("ACME.trainer:Trainer.gone"),
        acme.target("ACME.trainer:Trainer.update", tier="extra"),
        acme.target("ACME.nowhere:f"),
        acme.target("ACME.user:f"),
        acme.target("not_installed_at_all:f"),
        acme.target("ACME.trainer:loss", unless="ACME.trainer:Trainer"),
    ]
    acme.write("user", "def f(): pass")
    acme.load("trainer")

    states = install(acme.patch(*targets))
    found = [(one.state, one.reason) for one in registry.report_targets().targets]
    assert found == [
        ("skipped", Reason.ABSENT), ("skipped", Reason.DISABLED_TIER), ("skipped", Reason.ABSENT),
        ("waiting", Reason.NOT_IMPORTED), ("skipped", Reason.NOT_INSTALLED), ("skipped", Reason.SUPERSEDED),
    ]  # fmt: skip
    assert {one.reason for one in states.values()} <= set(REASONS)


def test_a_function_that_has_a_range_already_gets_no_second_one(acme: Any, install: Any) -> None:
    acme.write("trainer", TRAINER)
    module = acme.load("trainer")
    module.Trainer.update = functools.wraps(module.Trainer.update)(mstx_timer("mine")(module.Trainer.update))

    assert install(acme.patch("ACME.trainer:Trainer.update"))["Trainer.update"].reason == Reason.HAS_RANGE
    with captured() as recorded:
        module.Trainer().update([1])
    assert names(recorded) == ["mine"]


def test_a_patch_that_somebody_has_replaced_since_is_left_to_them(
    acme: Any, install: Any, caplog: pytest.LogCaptureFixture
) -> None:
    acme.write("trainer", TRAINER)
    module = acme.load("trainer")
    install(acme.patch("ACME.trainer:loss"))
    theirs = module.loss = lambda batch: "theirs"

    registry.remove_patches()

    assert module.loss is theirs
    assert "replaced by somebody else" in caplog.text


def test_the_step_and_attributes_come_from_the_call(acme: Any, install: Any, when: str) -> None:
    target = acme.target(
        "ACME.trainer:Trainer.update", name="update", stage="actor_update", step="self.iteration",
        attributes={"batch": "len(batch)", "lr": "lr"}, role="stage",
    )  # fmt: skip
    module, _ = load(acme, install, when, target)

    with captured() as recorded:
        module.Trainer().update([1, 2, 3])

    (one,) = recorded.ranges
    assert (one.name, one.stage, one.step) == ("update", "actor_update", 4)
    assert one.attributes == {"batch": 3, "lr": 0.1, "role": "actor"}


def test_the_step_that_a_call_ends_is_followed_by_the_next_at_the_next_stage(acme: Any, install: Any) -> None:
    acme.write("worker", "class W:\n def sync(self, global_steps): pass\n def update(self): pass\n def fine(self): 1")
    module = acme.load("worker")
    install(acme.patch(
        acme.target("ACME.worker:W.sync", stage="weight_sync", step_after="global_steps"),
        acme.target("ACME.worker:W.update", stage="actor_update"),
        acme.target("ACME.worker:W.fine"),
    ))  # fmt: skip
    worker = module.W()

    with captured() as recorded:
        step(0)
        for call in (worker.update, lambda: worker.sync(7), worker.fine, worker.update, worker.fine):
            call()

    assert [one.step for one in recorded.ranges] == [0, 7, 7, 8, 8]


def test_a_step_may_be_told_by_a_callable_of_the_calls_own_arguments(acme: Any, install: Any) -> None:
    acme.write("worker", "class W:\n def log(self, text, done=None): pass\n def update(self): pass")
    module = acme.load("worker")
    install(acme.patch(
        acme.target("ACME.worker:W.log", step_after=lambda worker, text, done=None: None if done is None else done - 1),
        acme.target("ACME.worker:W.update", stage="actor_update", step=lambda worker: entry.step_to_come()),
    ))  # fmt: skip
    worker = module.W()

    with captured() as recorded:
        for call in (lambda: worker.log("finished", done=5), lambda: worker.log("text"), worker.update, worker.update):
            call()

    assert [one.step for one in recorded.ranges] == [4, 4, 5, 5]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_the_step_that_follows_is_not_that_of_a_forked_child(acme: Any, install: Any) -> None:
    acme.write("worker", "class W:\n def sync(self, global_steps): pass\n def update(self): pass")
    module = acme.load("worker")
    install(acme.patch(
        acme.target("ACME.worker:W.sync", stage="weight_sync", step_after="global_steps"),
        acme.target("ACME.worker:W.update", stage="actor_update"),
    ))  # fmt: skip

    def child() -> bool:
        with captured() as recorded:
            module.W().update()
        return [one.step for one in recorded.ranges] == [None]

    with captured():
        module.W().sync(7)

    assert in_child(child)


def test_an_attribute_that_cannot_be_read_is_counted_and_the_range_recorded(
    acme: Any, install: Any, caplog: pytest.LogCaptureFixture
) -> None:
    target = acme.target("ACME.trainer:Trainer.update", attributes={"x": "self.missing", "lr": "lr"})
    module, _ = load(acme, install, "after import", target)

    with captured() as recorded:
        module.Trainer().update([1])
        module.Trainer().update([1])

    assert [one.attributes for one in recorded.ranges] == [{"lr": 0.1}, {"lr": 0.1}]
    assert len([r for r in caplog.records if "is left out" in r.message]) == 1


def test_an_expression_of_a_parameter_that_the_function_lacks_is_reported_and_the_range_recorded(
    acme: Any, install: Any, caplog: pytest.LogCaptureFixture
) -> None:
    target = acme.target("ACME.trainer:Trainer.update", attributes={"x": "tokens", "lr": "lr"}, step="epoch")
    module, states = load(acme, install, "after import", target)

    with captured() as recorded:
        module.Trainer().update([1])

    assert states["Trainer.update"].state == "applied"
    assert "has no parameter tokens" in states["Trainer.update"].detail
    assert "has no parameter epoch" in caplog.text
    assert [one.attributes for one in recorded.ranges] == [{"lr": 0.1}]


def test_a_context_manager_of_the_framework_becomes_ranges_named_by_its_argument(
    acme: Any, install: Any, when: str
) -> None:
    text = f"{CONTEXT}def timer(name, raw):\n yield 5\n raw[name] = 1\n"
    module = loaded("timing", text, acme, install, when, acme.target("ACME.timing:timer", kind="context"))
    raw: dict[str, int] = {}

    with captured() as recorded:
        with module.timer("old_log_prob", raw) as given:
            pass
        with pytest.raises(KeyError), module.timer("mine", raw):
            raise KeyError

    assert (given, raw) == (5, {"old_log_prob": 1})
    assert rows(recorded) == [("old_log_prob", "actor_compute_log_prob"), ("mine", None)]


def test_a_context_manager_that_decorates_or_is_async_stays_one(acme: Any, install: Any, when: str) -> None:
    text = f"from contextlib import asynccontextmanager\n{CONTEXT}def timer(name):\n yield 5\n"
    text += "@asynccontextmanager\nasync def waiting(name):\n yield 6\n"
    targets = [acme.target(f"ACME.timing:{name}", kind="context") for name in ("timer", "waiting")]
    module = loaded("timing", text, acme, install, when, *targets)

    decorated = module.timer("decorated")(lambda: 3)

    async def entered(fails: bool) -> Any:
        async with module.waiting("async") as given:
            if fails:
                raise KeyError
            return given

    with captured() as recorded:
        assert (decorated(), decorated(), asyncio.run(entered(False))) == (3, 3, 6)
        with pytest.raises(KeyError):
            asyncio.run(entered(True))

    names = [(one.name, one.error) for one in recorded.ranges]
    assert names == [("decorated", False)] * 2 + [("async", False), ("async", True)]


def test_a_call_that_waits_for_workers_says_so(acme: Any, install: Any, when: str) -> None:
    target = acme.target("ACME.trainer:Trainer.update", waits=True, attributes={"batches": "len(batch)"})
    module, _ = load(acme, install, when, target)

    with captured() as recorded:
        module.Trainer().update([1])

    assert [one.attributes for one in recorded.ranges] == [{"batches": 1, "waits_for": "workers"}]


def test_of_contexts_those_with_a_name_that_is_declared_wait(acme: Any, install: Any, when: str) -> None:
    text = f"{CONTEXT}def timer(name):\n yield\n@contextmanager\ndef waiting(name):\n yield\n"
    targets = (
        acme.target("ACME.timing:timer", kind="context", waits=("gen",)),
        acme.target("ACME.timing:waiting", kind="context", waits=True),
    )
    module = loaded("timing", text, acme, install, when, *targets)

    with captured() as recorded:
        for context in (module.timer("gen"), module.timer("adv"), module.waiting("adv")):
            with context:
                pass

    assert [one.attributes.get("waits_for") for one in recorded.ranges] == ["workers", None, "workers"]


def test_a_context_that_is_left_out_is_as_without_us_and_what_runs_in_it_has_its_range(
    acme: Any, install: Any, when: str
) -> None:
    text = f"{CONTEXT}def timer(name):\n yield name\ndef start(): pass\n"
    timer = acme.target("ACME.timing:timer", kind="context", leaves_out=("profile",))
    module = loaded("timing", text, acme, install, when, timer, acme.target("ACME.timing:start"))

    with captured() as recorded:
        with module.timer("profile") as given:
            module.start()
        with module.timer("step"):
            pass

    assert given == "profile"
    assert [one.name for one in recorded.ranges] == ["start", "step"]


def test_a_global_is_replaced_by_what_its_target_says(acme: Any, install: Any, when: str) -> None:
    acme.write("hooks", "FACTORY = None")
    module = acme.load("hooks") if when == "after import" else None
    install(acme.patch(acme.target("ACME.hooks:FACTORY", kind="value", value="mstxkit.marking.ranges:mstx_range")))
    module = module or acme.load("hooks")

    with captured() as recorded, module.FACTORY("forward"):
        pass

    assert names(recorded) == ["forward"]
    registry.remove_patches()
    assert module.FACTORY is None
    assert sys.modules[module.__name__] is module


def test_a_polled_target_is_one_record_with_count_and_total(acme: Any, install: Any, when: str) -> None:
    module, _ = load(acme, install, when, acme.target("ACME.trainer:Trainer.pure", coalesce=True))

    with captured() as recorded:
        for _ in range(100):
            module.Trainer.pure(1)
        engine.flush_coalesced()

    assert [(one.name, one.attributes["coalesced"]) for one in recorded.ranges] == [("Trainer.pure", 100)]


def test_a_polled_property_is_coalesced_too(acme: Any, install: Any, when: str) -> None:
    module, _ = load(acme, install, when, acme.target("ACME.trainer:Trainer.size", coalesce=True))
    trainer = module.Trainer()

    with captured() as recorded:
        assert [trainer.size for _ in range(50)] == [11] * 50
        engine.flush_coalesced()

    assert [one.attributes["coalesced"] for one in recorded.ranges] == [50]


def test_a_wildcard_takes_public_functions_of_the_place_itself_only(acme: Any, install: Any) -> None:
    acme.write("other", "def imported(): pass")
    acme.write("many", "from ACME.other import imported\nimport os\nLIMIT = 3\ndef one(): pass\ndef two(): pass\n"
               "def _hidden(): pass\nclass C:\n def three(self): pass\n def _quiet(self): pass\n")  # fmt: skip
    module = acme.load("many")

    install(acme.patch("ACME.many:*", "ACME.many:C.*", "ACME.many:_h*"))

    patched = {name for name in ("imported", "one", "two", "_hidden") if hasattr(getattr(module, name), "__wrapped__")}
    patched |= {name for name in ("three", "_quiet") if hasattr(getattr(module.C, name), "__wrapped__")}
    assert patched == {"one", "two", "_hidden", "three"}


def test_a_wildcard_leaves_to_others_what_has_a_range_of_its_own(acme: Any, install: Any, when: str) -> None:
    text = "import mstxkit\nclass C:\n @mstxkit.mstx_timer('marked')\n def mark(self): pass\n"
    text += " def save(self): pass\n def fit(self): pass\n"
    targets = "ACME.many:C.*", acme.target("ACME.many:C.fit", name="fit", stage="train_step")
    module = loaded("many", text, acme, install, when, *targets)
    many = module.C()

    with captured() as recorded:
        many.mark(), many.save(), many.fit()

    assert rows(recorded) == [("marked", None), ("C.save", None), ("fit", "train_step")]
    assert {state.state for state in install().values()} == {"applied"}
    registry.remove_patches()
    with captured() as recorded:
        many.mark(), many.save(), many.fit()
    assert names(recorded) == ["marked"]


def test_a_name_of_the_same_path_for_another_version_is_a_target_of_its_own(acme: Any, install: Any) -> None:
    acme.write("trainer", TRAINER)
    acme.load("trainer")
    old = acme.target("ACME.trainer:loss", name="old", unless="ACME.trainer:Trainer")
    new = acme.target("ACME.trainer:loss", name="new")

    install(acme.patch(old, new))

    assert [(one.name, one.state) for one in registry.report_targets().targets] == [
        ("old", "skipped"),
        ("new", "applied"),
    ]


def test_a_range_of_a_patched_function_survives_its_way_through_cloudpickle(acme: Any, install: Any) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    acme.write("trainer", TRAINER)
    module = acme.load("trainer")
    install(acme.patch(acme.target("ACME.trainer:Trainer.update", step="self.iteration", attributes={"lr": "lr"})))
    module.Trainer.update.__module__ = "__main__"  # so that it travels by value

    copied = pickle.loads(cloudpickle.dumps(module.Trainer.update))
    with captured() as recorded:
        copied(module.Trainer(), [1])

    assert copied is not module.Trainer.update
    assert [(one.step, one.attributes) for one in recorded.ranges] == [(4, {"lr": 0.1})]


@pytest.mark.parametrize("name", ["update", "generate", "stream", "astream"])
def test_a_copy_out_of_reach_is_a_call_without_a_range_once_patching_is_undone(
    acme: Any, install: Any, name: str
) -> None:
    module, _ = load(acme, install, "after import", f"ACME.trainer:Trainer.{name}")
    kept = functools.partial(getattr(module.Trainer, name), module.Trainer())

    async def collected() -> list[int]:
        return [i async for i in kept(2)]

    registry.remove_patches()
    with captured() as recorded:
        given = {
            "update": lambda: kept([1]), "generate": lambda: asyncio.run(kept(1)), "stream": lambda: list(kept(2)),
            "astream": lambda: asyncio.run(collected()),
        }[name]()  # fmt: skip

    assert given == {"update": 2, "generate": 2, "stream": [0, 1], "astream": [0, 1]}[name]
    assert not recorded.ranges


@pytest.mark.parametrize("first_undone", [0, 1])
def test_of_two_patches_one_above_the_other_each_can_be_undone_first(
    acme: Any, install: Any, first_undone: int
) -> None:
    """The lower one decides, without a range; the upper one is a range around it."""
    module, _ = load(acme, install, "after import")
    plain = module.loss
    lower = acme.target("ACME.trainer:loss", kind="wrap", value=f"{__name__}:negated")
    registry.install_patches([(Patch("lower", "any", (lower,)), True)])
    registry.install_patches([(Patch("upper", "any", (acme.target("ACME.trainer:loss"),)), True)])
    both = module.loss([1])

    registry.remove_patches([["lower", "upper"][first_undone]])
    with captured() as recorded:
        left = module.loss([1])
    registry.remove_patches()

    assert (both, left) == (-2, [2, -2][first_undone])
    assert names(recorded) == [["loss"], []][first_undone]
    assert module.loss is plain


def negated(upstream: Any, *args: Any) -> Any:
    return -upstream(*args)


def test_what_another_patch_has_is_taken_up_when_that_is_undone(acme: Any, install: Any) -> None:
    module, _ = load(acme, install, "after import")
    targets = (acme.target("ACME.trainer:loss"),)
    registry.install_patches([(Patch("one", "any", targets), True), (Patch("two", "any", targets), True)])
    before = [(one.framework, one.state, one.reason) for one in registry.report_targets().targets]

    registry.remove_patches(["one"])

    after = [(one.framework, one.state) for one in registry.report_targets().targets]
    assert before == [("one", "applied", ""), ("two", "skipped", Reason.HAS_RANGE)]
    assert after == [("two", "applied")]
    assert hasattr(module.loss, "__wrapped__")
