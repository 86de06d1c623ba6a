"""The recording of `mstxkit top` that the guide shows: of a real job, in a real terminal. `make recording`.

A job is trained (`mstxkit demo`, four ranks, of which one generates slowly), `top` runs beside it in a terminal of its
own, and what it writes there is kept with its times: as an asciicast, which asciinema plays, and as a moving picture.
"""

from __future__ import annotations

import codecs
import fcntl
import html
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Iterator, NamedTuple, Sequence

from rich.color import ColorTriplet
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs/guide/images"
COLUMNS, ROWS = 96, 28
# `top` is shown for so long after the verdict, and for so long at most.
_AFTER_S, _AT_MOST_S, _BEGINS_WITHIN_S = 8.0, 60.0, 120.0
_HOME = "\x1b[H"
_CELL, _LINE, _EDGE = 7.8, 17, 14
_THEME, _CONSOLE = DIMMED_MONOKAI, Console(width=COLUMNS, color_system="truecolor", force_terminal=True)


class Written(NamedTuple):
    """What a program wrote, and so many seconds after its first word."""

    seconds: float
    text: str


def main() -> int:
    """Make both files anew."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # the judge may still write
        run = Path(folder) / "runs/exp7"
        command = [
            sys.executable,
            "-m",
            "mstxkit",
            "demo",
            "--ranks",
            "4",
            "--steps",
            "400",
            "--run",
            str(run),
            "--json",
        ]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True) as job:
            try:
                written = list(_recorded(run))
            finally:
                os.killpg(job.pid, 9)
    (IMAGES / "top.cast").write_text(cast(written), encoding="utf-8")
    (IMAGES / "top.svg").write_text(svg(frames(written)), encoding="utf-8")
    return 0


def _recorded(run: Path) -> Iterator[Written]:
    deadline_s = time.monotonic() + _BEGINS_WITHIN_S
    while not list(run.glob("verdicts/job.json")):
        assert time.monotonic() < deadline_s, "nobody judges the job"
        time.sleep(0.2)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    env |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "MSTXKIT_JUDGE": "0"}
    command = [sys.executable, "-m", "mstxkit", "top", "runs/exp7"]
    place = run.parents[1]
    with subprocess.Popen(command, cwd=place, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as shown:
        os.close(theirs)
        for seconds, text in _until_seen(ours):
            yield Written(seconds, text.replace(str(run), "runs/exp7".ljust(len(str(run)))))
        os.write(ours, b"q")
        shown.wait(30)
    os.close(ours)


def _until_seen(terminal: int) -> Iterator[Written]:
    """All that is written until a verdict has been shown for a while."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    began_s, end_s = 0.0, time.monotonic() + _AT_MOST_S
    while time.monotonic() < end_s:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        text = decode(os.read(terminal, 1 << 16))
        while select.select([terminal], [], [], 0.05)[0]:  # a picture as a whole
            text += decode(os.read(terminal, 1 << 16))
        began_s = began_s or time.monotonic()
        yield Written(time.monotonic() - began_s, text)
        if "next: mstxkit" in text:
            end_s = min(end_s, time.monotonic() + _AFTER_S)


def cast(written: Sequence[Written]) -> str:
    """As asciinema has it. Source: asciicast v2."""
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "mstxkit top runs/exp7"}
    lines = [json.dumps(head), *(json.dumps([round(seconds, 3), "o", text]) for seconds, text in written)]
    return "\n".join(lines) + "\n"


def frames(written: Sequence[Written]) -> list[tuple[float, list[Text]]]:
    """Each picture with the second in which it was there; one that is like that before is left out."""
    found, text, since_s = list[tuple[float, str]](), "", 0.0
    for seconds, more in [*written, Written(written[-1].seconds, _HOME)]:
        for number, part in enumerate(more.split(_HOME)):
            if number:
                found.append((since_s, text))
                text, since_s = "", seconds
            text += part
    pictures = [(s, t) for s, t in found if t.count("\n") > ROWS // 2]
    kept = [p for n, p in enumerate(pictures) if n == 0 or p[1] != pictures[n - 1][1]]
    return [(seconds, list(map(Text.from_ansi, text.replace("\r", "").split("\n")))[:ROWS]) for seconds, text in kept]


def svg(shown: Sequence[tuple[float, list[Text]]]) -> str:
    """A picture that moves, also as `<img>`: each line that ever was there once, each frame at its time, for ever."""
    lines: dict[str, int] = {}
    begins = [seconds - shown[0][0] for seconds, _ in shown]
    whole_s = begins[-1] + 2 * _AFTER_S / 3
    rules, groups = [], []
    for number, ((_, texts), begin, end) in enumerate(zip(shown, begins, [*begins[1:], whole_s])):
        uses = [
            (lines.setdefault(_line(text), len(lines)), row) for row, text in enumerate(texts) if text.plain.strip()
        ]
        placed = "".join(f'<use href="#l{line}" y="{_EDGE + _LINE * (row + 1)}"/>' for line, row in uses)
        groups.append(f'<g class="f" style="animation-name:k{number}">{placed}</g>')
        rules.append(_rule(number, 100 * begin / whole_s, 100 * end / whole_s))
    width, height = _CELL * COLUMNS + 2 * _EDGE, _LINE * ROWS + 2 * _EDGE
    still = f".f{{visibility:hidden;animation:{whole_s:.2f}s step-end infinite}}"
    fonts = "text{font:13px 'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre}"
    kept = "".join(f'<g id="l{number}">{line}</g>' for line, number in lines.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}">'
        f"<title>mstxkit top, recorded</title><style>{fonts}{still}{''.join(rules)}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="{_THEME.background_color.hex}"/>'
        f"<defs>{kept}</defs>{''.join(groups)}</svg>\n"
    )


def _rule(number: int, first: float, last: float) -> str:
    """When a frame is there, in percent of the whole."""
    before = f"0%{{visibility:hidden}}{first:.3f}%{{visibility:visible}}" if number else "0%{visibility:visible}"
    return f"@keyframes k{number}{{{before}{last:.3f}%,100%{{visibility:hidden}}}}"


def _line(text: Text) -> str:
    runs, at = [], 0
    for segment in text.render(_CONSOLE):
        plain, cells = segment.text, len(segment.text)
        if plain.strip():
            runs.append(
                f'<text x="{_EDGE + _CELL * at:.1f}" textLength="{_CELL * cells:.1f}" {_look(segment.style)}>'
                f"{html.escape(plain)}</text>"
            )
        at += cells
    return "".join(runs)


def _look(style: Style | None) -> str:
    style = style or Style()
    colour: ColorTriplet = (
        _THEME.foreground_color if style.color is None else style.color.get_truecolor(_THEME, foreground=True)
    )
    weight = ' font-weight="bold"' if style.bold else ""
    faint = ' opacity="0.6"' if style.dim else ""
    return f'fill="{colour.hex}"{weight}{faint}'


if __name__ == "__main__":
    sys.exit(main())
