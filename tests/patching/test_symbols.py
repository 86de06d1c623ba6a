"""What a package holds is read from its source, and is what importing it would show; nothing of it is executed."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from types import FunctionType

import pytest

from mstxkit.patching import symbols
from mstxkit.patching.declare import Patch, Target
from mstxkit.patching.report import Reason

FILES = {
    "__init__.py": "raise SystemExit('executed')\nfrom .trainer import Trainer as Main\n",
    "trainer.py": """
        import functools
        from abc import ABC
        from typing import TYPE_CHECKING, Generic
        from . import marks as own_marks
        from .base import *
        from .base import helper as renamed

        FLAG = None
        alias = renamed
        made = functools.partial(renamed)

        if TYPE_CHECKING:
            from .base import Other

        try:
            import missing_package
        except ImportError:
            def fallback(): ...

        class Trainer(Base, Generic["T"], ABC):
            limit: int = 3
            def fit(self): ...
            async def update(self): ...
            @property
            def size(self): ...
            if FLAG:
                def conditional(self): ...
            also_fit = fit
            class Inner:
                def deep(self): ...

        class Subscripted(Base[int]): ...
        class FromModule(own_marks.Marks): ...
        class Circle(Circle): ...
        """,
    "base.py": """
        class Root:
            def inherited(self): ...
            def _hidden(self): ...
        class Base(Root):
            def overridden(self): ...
        class Other: ...
        def helper(): ...
        def _private(): ...
        """,
    "marks.py": "class Marks:\n    def start(self): ...\n",
    "broken.py": "def f(:\n",
    "sub/__init__.py": "from ..trainer import Trainer\n",
    "sub/deep.py": "from ..base import Base\nfrom ..sub import Trainer as T\nclass Own(T): ...\n",
    "namespace/inside.py": "def found(): ...\n",
}


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> symbols.Symbols:
    """The symbols of a package that ends the process when it is imported."""
    for name, text in FILES.items():
        path = tmp_path / "acme_symbols" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return symbols.find_symbols()


@pytest.mark.parametrize(
    "path",
    [
        "acme_symbols.trainer:Trainer.fit",
        "acme_symbols.trainer:Trainer.update",
        "acme_symbols.trainer:Trainer.size",
        "acme_symbols.trainer:Trainer.conditional",
        "acme_symbols.trainer:Trainer.also_fit",
        "acme_symbols.trainer:Trainer.inherited",
        "acme_symbols.trainer:Trainer.overridden",
        "acme_symbols.trainer:Subscripted.overridden",
        "acme_symbols.trainer:FromModule.start",
        "acme_symbols.trainer:renamed",
        "acme_symbols.trainer:helper",
        "acme_symbols.trainer:alias",
        "acme_symbols.trainer:made",
        "acme_symbols.trainer:fallback",
        "acme_symbols.trainer:FLAG",
        "acme_symbols.trainer:Trainer.*",
        "acme_symbols.trainer:Trainer.f*",
        "acme_symbols.base:_*",
        "acme_symbols.base:*",
        "acme_symbols.sub.deep:Own.inherited",
        "acme_symbols.sub:Trainer.fit",
        "acme_symbols:Main.fit",
        "acme_symbols.namespace.inside:found",
    ],
)
def test_what_is_there_is_found_through_names_and_base_classes(acme: symbols.Symbols, path: str) -> None:
    assert acme.holds(Target(path))


@pytest.mark.parametrize(
    "path",
    [
        "acme_symbols.trainer:Trainer",
        "acme_symbols.trainer:Trainer.nothing",
        "acme_symbols.trainer:Trainer.fit.deeper",
        "acme_symbols.trainer:Nobody.fit",
        "acme_symbols.trainer:Circle.fit",
        "acme_symbols.trainer:Trainer.x*",
        "acme_symbols.trainer:h*",
        "acme_symbols.trainer:missing_package",
        "acme_symbols.base:p*",
        "acme_symbols.broken:f",
        "acme_symbols.missing:f",
        "acme_symbols.trainer.below:f",
        "not_installed_at_all:f",
    ],
)
def test_what_is_not_there_is_not_found(acme: symbols.Symbols, path: str) -> None:
    assert not acme.holds(Target(path))


def test_nothing_is_imported(acme: symbols.Symbols) -> None:
    assert acme.holds(Target("acme_symbols:Main.fit"))
    assert "acme_symbols" not in sys.modules


def test_states_say_held_or_why_not(acme: symbols.Symbols) -> None:
    patch = Patch(
        "acme_symbols",
        "",
        (
            Target("acme_symbols.trainer:Trainer.fit", stage="train_step", tier="extra"),
            Target("acme_symbols.trainer:Trainer.gone"),
            Target("acme_symbols.trainer:Trainer.update", unless="acme_symbols.trainer:Trainer.fit"),
            Target("acme_symbols.trainer:Trainer.update", unless="acme_symbols.trainer:Trainer.gone"),
            Target("acme_symbols.trainer:FLAG", kind="value", value="a:b"),
            Target("not_installed_at_all.x:f"),
        ),
    )

    states = acme.states(patch)

    assert [(state.state, state.reason) for state in states] == [
        ("held", ""),
        ("skipped", Reason.ABSENT),
        ("skipped", Reason.SUPERSEDED),
        ("held", ""),
        ("held", ""),
        ("skipped", Reason.NOT_INSTALLED),
    ]
    assert states[0].tier == "extra" and states[0].stage == "train_step"
    assert states[2].detail == "acme_symbols.trainer:Trainer.fit"


def test_a_folder_may_be_looked_into_first(tmp_path: Path) -> None:
    (tmp_path / "acme_first.py").write_text("def f(): ...\n", encoding="utf-8")

    assert symbols.find_symbols(str(tmp_path)).holds(Target("acme_first:f"))
    assert not symbols.find_symbols().holds(Target("acme_first:f"))


def test_what_the_source_of_a_real_package_holds_is_what_importing_it_shows() -> None:
    import json.encoder

    read = symbols.find_symbols()
    here = dict(vars(json.encoder))
    here.update({f"JSONEncoder.{name}": held for name, held in vars(json.encoder.JSONEncoder).items()})
    functions = [name for name, held in here.items() if isinstance(held, FunctionType)]

    assert functions
    assert [name for name in functions if not read.holds(Target(f"json.encoder:{name}"))] == []
    assert read.holds(Target("json:JSONEncoder.encode"))
    assert not read.holds(Target("json:JSONDecoder.encode"))
