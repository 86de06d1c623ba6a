"""All ways by which figures of one job leave, opened and fed by who judges it. Nothing here raises, or waits.

What cannot be opened, a port that was taken, what was dropped: `notes` says so, and `mstxkit top` shows it.
"""

from __future__ import annotations

import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Sequence

from ..errors import MstxkitError
from ..host import folders
from ..reading import otlp_spans
from ..reading.otlp_spans import JobSpan
from ..store import documents, layout
from ..store.job_file import JobState, RoleFigures
from ..store.metrics_setting import AUTO, OTLP, PAGE, RAY, TARGETS, TEXTFILE, MetricsSetting, Outlet
from ..store.report import EscalationNews
from ..store.verdicts import Verdict
from . import discovery, samples
from .endpoint import serve_page
from .otlp import OtlpSender
from .samples import MetricSample

_RAY_EVERY_S, TEXTFILE_EVERY_S = 2.0, 5.0
# The node exporter may run as somebody else.
_TEXTFILE_MODE = 0o644
_NOTES_AT_MOST = 8
# Series of Ray's that were ever set: each stays with Ray for the life of the actor.
_SERIES_EVER_AT_MOST = 4_000


class Outlets:
    """Those of one job. One thread at a time, but pages, which are made in the threads of who scrapes.

    `setting` is what to open, `is_in_ray` whether this is an actor of Ray's; `tells` is called with each note that is
    new. `served` is where the page is, as `http://…`; "" where there is none.
    """

    def __init__(
        self, run: Path, run_id: str, setting: MetricsSetting, is_in_ray: bool = False,
        tells: Callable[[str], None] = lambda note: None,
    ) -> None:  # fmt: skip
        self.setting, self.served, self._tells = setting, "", tells
        self._run, self._run_id, self._is_in_ray = run, run_id, is_in_ray
        self._label = samples.run_label(run.name, run_id)
        self._notes: list[str] = []
        self._is_open = False
        self._of: tuple[JobState, Sequence[Verdict]] = (JobState(), ())
        self._page: tuple[object, bytes] = (None, b"")
        self._shows: list[tuple[float, Callable[[], None]]] = []
        self._due_s: list[float] = []
        self._ends: list[Callable[[], None]] = []
        self._senders: list[OtlpSender] = []

    def judged(self, roles: Sequence[RoleFigures], changed: Sequence[Verdict]) -> None:
        """Steps that were judged just now, and verdicts that say something new."""
        self._open_outlets()
        if self._senders and (roles or changed):
            self._try(lambda: self._put_spans([
                *(span for role in roles for span in otlp_spans.of_role(self._run_id, role)),
                *(span for verdict in changed for span in otlp_spans.of_verdict(self._run_id, verdict)),
            ]))  # fmt: skip

    @property
    def has_otlp(self) -> bool:
        """Is what happens sent as it happens?"""
        return any(outlet.kind == OTLP for outlet in self.setting.outlets)

    def escalated(self, news: Sequence[EscalationNews]) -> None:
        """What has become of requests for profiles."""
        self._open_outlets()
        if self._senders and news:
            self._try(lambda: self._put_spans([otlp_spans.of_escalation(self._run_id, request) for request in news]))

    def _put_spans(self, spans: Sequence[JobSpan]) -> None:
        for sender in self._senders:
            sender.put(spans)

    def show(self, state: JobState, verdicts: Sequence[Verdict]) -> None:
        """The job as it is now, and the verdicts that hold."""
        self._open_outlets()
        self._of = (state, verdicts)
        now_s = time.monotonic()
        for number, (every_s, show) in enumerate(self._shows):
            if now_s >= self._due_s[number]:
                self._due_s[number] = now_s + every_s
                self._try(show)

    def notes(self) -> tuple[str, ...]:
        """What there is to say of them."""
        dropped = sum(sender.dropped for sender in self._senders)
        problem = next((f"otlp: {sender.problem}" for sender in self._senders if sender.problem), "")
        served = f"metrics at {self.served}" if self.served else ""
        notes = (served, problem, f"otlp: {dropped} spans dropped" if dropped else "", *self._notes)
        return tuple(filter(None, notes))[:_NOTES_AT_MOST]

    def close(self) -> None:
        """The job is over, or another one judges it. Waits for two seconds at most."""
        for end in self._ends:
            self._try(end)
        self._shows, self._ends = [], []

    def _open_outlets(self) -> None:
        if not self._is_open:
            self._is_open = True
            for outlet in self.setting.outlets:
                self._try(lambda outlet=outlet: self._open_one(outlet))  # type: ignore[misc]
            self._due_s = [0.0] * len(self._shows)

    def _open_one(self, outlet: Outlet) -> None:
        if outlet.kind == RAY or (outlet.kind == AUTO and self._is_in_ray):
            if not self._is_in_ray:
                self._note("metrics=ray: this job is not judged by an actor of Ray's")
                return
            gauges = RayGauges()
            self._shows.append((_RAY_EVERY_S, lambda: self._show_in_ray(gauges)))
        elif outlet.kind == OTLP:
            resource = otlp_spans.resource_of(samples.clean_label(self._run.name), self._run_id)
            self._senders.append(OtlpSender(outlet.place, resource))
            self._ends.append(self._senders[-1].close)
        elif outlet.kind in (TEXTFILE, PAGE) and not samples.has_prometheus():
            self._note(samples.MISSING)
        elif outlet.kind == TEXTFILE:
            file = Textfile(self._run, self._run_id, outlet.place)
            self._shows.append((TEXTFILE_EVERY_S, lambda: file.write(self._make_text())))
            self._ends.append(file.remove)
        elif outlet.kind == PAGE:
            self._serve_page(outlet)

    def _show_in_ray(self, gauges: RayGauges) -> None:
        gauges.show(samples.make_samples(self._label, *self._of))
        if gauges.left_out:
            self._note("ray: some series are left out: there were too many over time")

    def _serve_page(self, outlet: Outlet) -> None:
        token = "" if outlet.address.is_loopback else discovery.make_token(self._run)
        endpoint = serve_page(outlet.address, self._make_text, token)
        self._ends.append(endpoint.close)
        self.served = f"http://{endpoint.address}/metrics"
        self._tells(f"metrics at {self.served}")
        if outlet.address.port not in (0, endpoint.address.port):
            self._note(f"port {outlet.address.port} could not be had: it is {endpoint.address.port}")
        others = [other.place for other in self.setting.outlets if other.kind == TARGETS]
        for file in discovery.tell_address(self._run, endpoint.address, self._label, others):
            # Now, as the next one may not be written. Another judge of this job may have told of its own page by then.
            self._ends.append(partial(documents.withdraw_file, file, documents.state_of(file)))

    def _make_text(self) -> bytes:
        """Made once of each state, whoever asks for it, in whichever thread."""
        of, page = self._of, self._page
        if page[0] is not of:
            page = self._page = (of, samples.as_page(samples.make_samples(self._label, *of)))
        return page[1]

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes = [*self._notes, text][-_NOTES_AT_MOST:]
            self._tells(text)

    def _try(self, work: Callable[[], None]) -> None:
        """A scraper, a disk or another version of a library is no end of judging."""
        try:
            work()
        except OSError as exc:  # a draft has another name each time
            self._note(f"{Path(exc.filename).parent}: {exc.strerror}" if exc.filename and exc.strerror else str(exc))
        except MstxkitError as exc:
            self._note(str(exc))
        except Exception as exc:
            self._note(f"{type(exc).__name__}: {exc}"[:200])


class Textfile:
    """A file for Prometheus' node exporter (`--collector.textfile.directory`): replaced as a whole, gone with the job.

    `folder` is where the file is, "": in the run. It is never made: who names one has it.
    """

    def __init__(self, run: Path, run_id: str, folder: str) -> None:
        self._own = not folder
        name = layout.TEXTFILE if self._own else f"mstxkit-{run_id[:12]}.prom"
        self.path = (run / layout.METRICS if self._own else Path(folder)) / name
        self._state = tuple[int, ...]()

    def write(self, content: bytes) -> None:
        """Replace it. OSError, MstxkitError: it cannot be written."""
        if self._own:
            folders.make_folder(self.path.parent)
        elif not self.path.parent.is_dir():
            raise MstxkitError(f"{self.path.parent} is no folder")
        documents.replace_file(self.path, content)
        if not self._own:
            self.path.chmod(_TEXTFILE_MODE)
        self._state = documents.state_of(self.path)

    def remove(self) -> None:
        """The job is over: what it says would be taken for true as long as it is there. Another judge's stays."""
        documents.withdraw_file(self.path, self._state)


class RayGauges:
    """Samples as gauges of Ray's own metrics: no port, scraped where Ray is scraped already, as `ray_mstxkit_…`.

    From the actor that judges, never from a training process. Where Ray has no dashboard, nothing comes of them, and
    nothing is held up either.

    Source: ray 2.42.1 and 2.60.0, `ray/util/metrics.py`, `Gauge(name, description, tag_keys)`, `set(value, tags)`. A
    gauge keeps what it was set to: Ray has no way to take a series back, so what is gone is set to 0.
    """

    def __init__(self) -> None:
        self._gauges: dict[str, Any] = {}
        self._values: dict[tuple[str, tuple[str, ...]], float] = {}
        self.left_out = 0

    def show(self, of: Sequence[MetricSample]) -> None:
        """Set what has changed. *Cost*: about 5 us a change."""
        now = {(sample.name, sample.labels): sample.value for sample in of}
        gone = {key: 0.0 for key, value in self._values.items() if key not in now and value}
        for key, value in (*gone.items(), *now.items()):
            if self._values.get(key) == value:
                continue
            if key not in self._values and len(self._values) >= _SERIES_EVER_AT_MOST:
                self.left_out += 1
                continue
            self._values[key] = value
            name, labels = key
            meaning, tag_keys = samples.BY_NAME[name].meaning, ("run", *samples.BY_NAME[name].labels)
            if name not in self._gauges:
                metrics = import_module("ray.util.metrics")
                self._gauges[name] = metrics.Gauge(name, description=meaning, tag_keys=tag_keys)
            self._gauges[name].set(value, tags=dict(zip(tag_keys, labels)))
