"""A rank on duty in this process: the real control folder and the real engine, a stand-in for the profiler session.

The watcher looks when a test says so (`look`), unless it is `started`.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Callable

from builders.escalated_run import control, empty_run, left
from builders.run_files import RUN_ID

from mstxkit.escalation.duty.duty import Duty
from mstxkit.escalation.duty.post import Post
from mstxkit.escalation.duty.sentry import Sentry
from mstxkit.escalation.duty.settings import DutySettings
from mstxkit.profiling.session import Order, Recorded
from mstxkit.store.messages import of_cancel
from mstxkit.store.report import Report, Standing
from mstxkit.store.request import Request

UPDATE, GENERATE = "actor_update", "actor_generate"
QUICK = DutySettings(poll_every_s=0.02, cooldown_s=0, agreement_s=20)


class Recording:
    """Stands in for `OneSession`: says what it was told to do, and what it did wrong.

    Args:
        did: Gets `+stage`, `-stage` in order.
    """

    def __init__(self, did: list[str] | None = None) -> None:
        self.did: list[str] = [] if did is None else did
        self.order: Order | None = None
        self.orders: list[Order] = []
        self.ends: list[tuple[str, list[int]]] = []
        self.holds: list[str] = []
        self.wrong: list[str] = []
        self.ended = 0
        self.refuses = ""
        self.taken_by = ""
        self.claim: Any = None
        self.is_waiting = False  # for the device
        self.raises: dict[str, BaseException] = {}
        self.bytes = 100
        self._thread = 0

    @property
    def is_open(self) -> bool:
        return self.order is not None

    def begin(self, order: Order) -> str | None:
        self._raise("begin")
        if self.order is not None:
            self.wrong.append(f"{order.stage} while {self.order.stage} is open")
            return "a session is open already"
        self.is_waiting = bool(self.refuses)
        if self.refuses:
            return self.refuses
        self.order, self._thread = order, threading.get_ident()
        self.orders.append(order)
        self.did.append(f"+{order.stage}")
        return None

    def end(self, why: str, steps: list[int], holds: str = "") -> Recorded | None:
        order = self.order
        if order is None:
            return None
        if self._thread != threading.get_ident():
            return Recorded(None, 0, ("not stopped: only the thread that started a session may stop it",), 1, 0)
        self.order = None
        self.ends.append((why, list(steps)))
        self.holds.append(holds)
        self.did.append(f"-{order.stage}")
        self._raise("end")
        return Recorded(Path("there"), self.bytes, (), 1, 2)

    def _raise(self, where: str) -> None:
        if where in self.raises:
            raise self.raises.pop(where)

    def bytes_so_far(self) -> int | None:
        return self.bytes if self.is_open else None


class Rank:
    """One rank on duty.

    Args:
        engine: Whose hooks it takes.
        folder: Of the run: made if it is missing.
    """

    def __init__(
        self,
        engine: Any,
        folder: Path,
        settings: DutySettings = QUICK,
        rank: int = 0,
        world_size: int = 1,
        role: str = "",
    ) -> None:
        self.engine, self.rank, self.role = engine, rank, role
        self.run = folder if folder.exists() else empty_run(folder)
        self.host = folder.parent / "host"
        self.host.mkdir(mode=0o700, exist_ok=True)
        self.session = Recording()
        sentry = Sentry(Post(self.run, RUN_ID, self.host, rank, world_size, role), settings)
        self.duty = Duty(sentry, settings, self.session)  # type: ignore[arg-type]
        self.duty.start()
        self.duty.watcher.stop()
        self.look()

    def look(self) -> None:
        """One look of the watcher."""
        self.duty.look()

    def ask(self, **given: Any) -> Request:
        """A request comes in."""
        request = left(self.run, **{"ranks": [self.rank], **given})
        self.look()
        return request

    def cancel(self, request: Request, reason: str = "not wanted") -> None:
        self.send(of_cancel(request.id, reason))

    def send(self, message: dict[str, Any]) -> None:
        control(self.run).send(message)
        self.look()

    def said(self) -> dict[str, Report]:
        """Its reports as they lie in the control folder, by request."""
        found = control(self.run).acknowledgement(self.rank, self.role)
        assert found is not None
        return {one.id: one for one in Standing.read(found.document).reports if one.rank == self.rank}

    def last(self, request: Request) -> Report:
        """What it says of a request after one more look."""
        self.look()
        return self.said()[request.id]

    def once(self, key: str) -> None:
        with self.engine.stage(key):
            pass

    def killed(self) -> None:
        """As if its process were killed: nothing more is said."""
        self.engine.watch(False)
        self.engine.set_watch(None, None, None)
        self.duty._mailbox._turn.give_up()


NewRank = Callable[..., Rank]


def listen(engine: Any, did: list[str]) -> None:
    """A live tool: what it is told goes among what the session did."""
    engine.set_sink(0, lambda name, domain: did.append(f"begin {name}") or name,
                    lambda name, domain: did.append(f"end {name}"), None, None)  # fmt: skip
