"""The keeper's part of a process, put together: whom it watches, what it passes on for its host, and to whom.

`capturing` loads it a second after a recorder began, on the recorder's thread: nothing of it is needed before.
"""

from __future__ import annotations

from ..cluster.agent import Agent
from ..escalation.duty.settings import DutySettings, of_metrics
from ..recorder.keeper import HandingOn, Keeper
from ..recorder.process import Recorder
from ..recorder.watchman import WatchmanStarter


def begun(recorder: Recorder, settings: DutySettings, is_forked: bool) -> Keeper:
    """The keeper's part of the process with this recorder; a forked child looks after nothing that was left before."""
    place = recorder.run, recorder.run_id, recorder.live.path.parent
    agent = Agent(*place, bool(settings.judge), of_metrics(settings))  # one who judges may be started from here
    watchman = WatchmanStarter(place, settings.hang_s, settings.incidents, settings.incidents_bytes)
    handing_on = HandingOn(agent.turn, agent.last)
    keeper = Keeper(recorder.run, recorder.run_id, recorder.live.path, watchman, handing_on, recorder.care)
    if not is_forked:
        keeper.begin()
    return keeper
