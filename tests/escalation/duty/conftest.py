"""Ranks on duty in this process, on each of the two engines, which records into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import pytest
from builders import engines, lives
from builders.rank_on_duty import GENERATE, QUICK, UPDATE, NewRank, Rank
from builders.written_banks import FAKE, Written

from mstxkit import faults
from mstxkit.escalation.duty import duty as duties
from mstxkit.host import identity, names
from mstxkit.marking.wrapping import decorate_target
from mstxkit.pieces import boundaries


@pytest.fixture(params=list(engines.MODULES))
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The engine that a duty uses; it records, into memory."""
    module = engines.load(request.param)
    for user in (duties, boundaries):
        monkeypatch.setattr(user, "engine", module)
    monkeypatch.setattr(duties, "import_ahead", lambda begins=True: False)  # no profiler is to begin
    clock, on_fault = module.clock_kind(), faults.on_fault
    module.set_hooks(
        names.describe_site, names.utf8, faults.note_fault, lambda settings, function: (settings, function)
    )
    module.set_clock(FAKE)
    Written(module)
    module.step(0)
    for key in (UPDATE, GENERATE):
        with module.stage(key):
            pass
    yield module
    module.watch(False)
    module.set_watch(None, None, None)
    module.clear_sink(0)
    module.set_recording(False)
    module.detach()
    module.set_clock(clock)
    module.set_hooks(names.describe_site, names.utf8, faults.note_fault, decorate_target)
    faults.on_fault = on_fault


@pytest.fixture
def new_rank(engine: Any, tmp_path: Path) -> Iterator[NewRank]:
    """Makes ranks of one run. None may have done anything wrong, nor met a fault that the test has not reset."""
    made: list[Rank] = []

    def make(settings: Any = QUICK, **of: Any) -> Rank:
        made.append(Rank(engine, tmp_path / "run", settings, **of))
        return made[-1]

    yield make
    assert [wrong for rank in made for wrong in rank.session.wrong] == []
    assert faults.counts == {}


@pytest.fixture
def rank(new_rank: NewRank) -> Rank:
    """Rank 0, the only one."""
    return new_rank()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run of a process that no launcher has given a rank."""
    for variable in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    identity.forget_learnt()
    with lives.own_run(tmp_path) as folder:
        yield folder
