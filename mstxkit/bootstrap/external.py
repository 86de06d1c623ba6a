"""A module that patches by being imported: `VERL_USE_EXTERNAL_MODULES=mstxkit.bootstrap.external`, and verl's plugin.

Naming it in VERL_USE_EXTERNAL_MODULES is asking: what MSTXKIT_AUTOPATCH says is patched, or every known framework
where it says nothing. As the entry point `verl.plugins` it is imported wherever verl is, and does what
MSTXKIT_AUTOPATCH says; nothing, where that is not set.

Source: verl 0.6.1 to 0.9.1 `verl/__init__.py`: external modules are imported, and a failure is fatal; since 0.9.0
plugins are loaded (not called), and a failure is logged at DEBUG. Both in the middle of `import verl`: hooks are set
on verl's modules here, and none of them is imported.
"""

from __future__ import annotations

import os

from .entry_points import patch_as_asked

VERL_VARIABLE = "VERL_USE_EXTERNAL_MODULES"

patch_as_asked(is_named=__name__ in os.environ.get(VERL_VARIABLE, "").split(","))
