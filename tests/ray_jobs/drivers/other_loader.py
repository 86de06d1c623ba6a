"""A Ray that no longer has what a worker is reached by: what `autopatch` says of it. No cluster is started.

Argument: the run folder.
"""

from __future__ import annotations

import json
import sys

from ray._private.function_manager import FunctionActorManager

import mstxkit

del FunctionActorManager._load_actor_class_from_gcs
notes = mstxkit.autopatch("trl").notes
sys.stdout.write(json.dumps([note for note in notes if "this Ray" in note]))
