"""How soon a watchman looks at the processes of its host again."""

from __future__ import annotations

import time
from pathlib import Path

from builders import lives

import mstxkit
from mstxkit.incidents.host import WatchedHost


def test_who_is_quiet_is_looked_at_twice_as_often_as_who_goes_on(tmp_path: Path) -> None:
    with lives.own_run(tmp_path) as run, mstxkit.capture(run, judge=False, hang_s=0):
        host = WatchedHost(lives.live_folder(run), hang_s=4.0)
        host.look()
        with mstxkit.mstx_range("goes on"):
            host.look()
        goes_on_s = host.look_again_s
        with mstxkit.mstx_range("is quiet"):
            host.look()
            time.sleep(1.1)  # more than a quarter of what may last
            host.look()
            is_quiet_s = host.look_again_s

    assert (goes_on_s, is_quiet_s) == (1.0, 0.5)
