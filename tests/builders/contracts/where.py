"""Where the environments and packages lie that `make setup-frameworks` makes, for tests that need a certain version."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENTS = ROOT / ".venvs"
FRAMEWORKS_PYTHON = ENVIRONMENTS / "frameworks/bin/python"  # torch, ray 2.60.0, verl 0.9.1, trl, transformers 5
SURFACES = ROOT / "tests/contracts/surfaces"

# verl of other versions than the installed one, each alone in a folder to be put in front of sys.path.
INSTALLED_VERL = "0.9.1"
OLDER_VERL = ("0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.0")
# Up to these, verl imports names that transformers 5 has no more.
NEEDS_TRANSFORMERS_4 = ("0.6.1", "0.7.0")


def verl_paths(version: str) -> list[str]:
    """What goes in front of the path (or into PYTHONPATH) of the frameworks environment to import this verl.

    Args:
        version: One of `OLDER_VERL`, or `INSTALLED_VERL`, which needs nothing.

    Raises:
        LookupError: it is not there: `make setup-frameworks`.
    """
    if version == INSTALLED_VERL:
        return []
    folders = [ENVIRONMENTS / "verl" / version]
    if version in NEEDS_TRANSFORMERS_4:
        folders.append(ENVIRONMENTS / "verl/transformers-4")
    missing = [folder for folder in folders if not folder.is_dir()]
    if missing:
        raise LookupError(f"{missing[0]} is missing: make setup-frameworks")
    return [str(folder) for folder in folders]
