"""`metrics/targets.json` and `metrics/token` of a run: how Prometheus finds who judges, and what it shows it.

    scrape_configs:
      - job_name: mstxkit
        file_sd_configs: [{files: ["/runs/exp7/metrics/targets.json", "/a/folder/of/many/jobs/*.json"]}]

Source: Prometheus 2.42 and 3.x, `file_sd_config`: a list of objects with `targets` and `labels`; of the paths only the
last part may hold a `*`.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Iterator, Sequence

from ..errors import MstxkitError
from ..host import folders, identity
from ..store import documents, layout
from ..store.metrics_setting import Address

_PRIVATE_MODE = 0o600
_TOKEN_AT_MOST = 200
_EVERY_ADDRESS = ("0.0.0.0", "::", "")


def tell_address(run: Path, address: Address, run_label: str, folders_too: Sequence[str]) -> Iterator[Path]:
    """Leave the entry in the run, and in these folders as `<label>.json`. Gives each file once it is written. Raises:
    OSError, MstxkitError where one cannot be written.
    """
    reached = address._replace(host=identity.name_host()) if address.host in _EVERY_ADDRESS else address
    folders.make_folder(run / layout.METRICS)
    # No label `run` here: what is scraped has it, and Prometheus would rename the one or the other.
    entry = [{"targets": [str(reached)], "labels": {"mstxkit_run": run_label, "mstxkit_host": identity.name_host()}}]
    # No name that a folder is called may lead out of the other folder.
    own_name = re.sub(r"[^\w-]", "_", run_label, flags=re.ASCII) + ".json"
    files = [run / layout.METRICS / layout.TARGETS, *(Path(folder) / own_name for folder in folders_too)]
    for file in files:
        documents.replace_file(file, json.dumps(entry, indent=1).encode() + b"\n")
        yield file


def make_token(run: Path) -> str:
    """The run's token, drawn where there is none yet: 32 random bytes in a file that only this user can read. Raises:
    MstxkitError where what is there is no such file, and nothing is served; OSError where it cannot be written.
    """
    folder = run / layout.METRICS
    folders.make_folder(folder)
    file = folder / layout.TOKEN
    drawn = secrets.token_urlsafe(32)
    # Whole at once: another judge may look at the same time, and this one be killed.
    if documents.write_new(file, f"{drawn}\n".encode(), _PRIVATE_MODE):
        return drawn
    status = os.lstat(file)
    if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid != os.geteuid():
        raise MstxkitError(f"{file} must be a file of user {os.geteuid()} with mode 600; remove it for a new one")
    kept = (documents.read_small(file, _TOKEN_AT_MOST, is_private=True) or b"").decode("ascii", "replace").strip()
    if len(kept) < 16:
        raise MstxkitError(f"{file} holds no token of 16 characters or more; remove it for a new one")
    return kept
