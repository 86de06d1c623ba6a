"""An adopter that is killed itself: at every step of its work the next one goes on, and no range is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import lives, soak

from mstxkit.recorder import adopt

LEAVES_BANKS = """
    import os, sys, mstxkit
    from mstxkit.recorder import sealer
    sealer.Sealer.start = lambda self: None  # so that full banks are left
    mstxkit.capture(sys.argv[1], bank_bytes=16384, banks=8, slots=16)
    for number in range(1500):
        with mstxkit.mstx_range("x", n=number):
            pass
    with mstxkit.stage("open"):
        os._exit(0)
"""
# Dies at the so-many-th call of what an adopter does to the world.
DIES = """
    import os, sys
    from mstxkit.recorder import adopt, live
    calls = [0]
    def counted(real, torn):
        def call(*args, **kwargs):
            calls[0] += 1
            if calls[0] == int(sys.argv[2]):
                if torn:
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                os._exit(7)
            return real(*args, **kwargs)
        return call
    for name in ("rename", "write", "open", "rmdir"):
        setattr(os, name, counted(getattr(os, name), name == "write"))
    import pathlib
    pathlib.Path.unlink = counted(pathlib.Path.unlink, False)
    adopt.collect_dead(sys.argv[1])
    print("went through", calls[0])
"""
# An adoption does at least so much, however many banks an engine needs.
AT_LEAST = 15


def read_back(run: Path) -> tuple[list[int], int]:
    rows = lives.ranges(run)
    return [row["attributes"]["n"] for row in rows if row["name"] == "x"], sum(row["open"] for row in rows)


@pytest.mark.parametrize("first_death", soak.rounds(range(1, 40), (1, *soak.sample([*range(4, 40, 3)], 3))))
def test_the_next_adopter_goes_on_where_one_was_killed(run: Path, first_death: int) -> None:
    """Two die in a row, at neighbouring steps, torn writes among them; at any time all ranges can be read, once."""
    lives.run(LEAVES_BANKS, run)
    deaths = 0
    for moment in (first_death, first_death + 1):
        process = lives.start(DIES, run, moment)
        status, out, err = lives.finished(process)
        assert status == 7 or int(out.removeprefix("went through ")) < moment, err
        deaths += status == 7
        assert read_back(run) == (list(range(1500)), 1)
    adopt.collect_dead(run)

    assert read_back(run) == (list(range(1500)), 1)
    assert [row["state"] for row in lives.processes(run)] == ["killed"]
    assert not lives.damage(run)
    assert not list((run / "live").iterdir())
    assert deaths or first_death > AT_LEAST, "the early moments are all in the middle of an adoption"
