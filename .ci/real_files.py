"""Real profiles that others have published, for tests/reading/importers/test_real_files.py: from clones, or by commit.

    python .ci/real_files.py                  what is not there yet, from GitHub, by commit
    REAL_FILES=FOLDER python .ci/real_files.py    from clones below FOLDER, bare or not; what one lacks is left out

They go into .venvs/real_files, a folder each, and nothing of them is committed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator, NamedTuple

PLACE = Path(__file__).resolve().parents[1] / ".venvs" / "real_files"
_HOST, _COMMIT = "https://github.com", "commit"
_DEEPEST = 3


class Source(NamedTuple):
    """A repository, and what of it is taken."""

    name: str
    commit: str
    folders: tuple[str, ...]

    @property
    def place(self) -> Path:
        """Where its files are put."""
        return PLACE / self.name.rpartition("/")[2]


SOURCES = (
    Source("Ascend/msinsight", "4e16fca1f118458ce8820e9fe9c3cd323db35707", ("test", "server/src/test")),
    Source("Ascend/msprof-analyze", "8399c1cdd2ae369c0e7f618694973dd85238cad1", ("test",)),
    Source(
        "facebookresearch/HolisticTraceAnalysis", "f4d0062c382f42bd8a74838bcdad1916c7d5d2da", ("tests/data",)
    ),
    Source("AMD-AGI/TraceLens", "171dd74721ca1ec45709e5805b68ae1f65e27811", ("tests/traces", "tests/rocprof")),
)  # fmt: skip


def main() -> None:
    """Have all of them. Ends with 1 where one cannot be had."""
    clones = os.environ.get("REAL_FILES")
    failed = [source.name for source in SOURCES if not (_is_here(source) or _has(source, clones))]
    if failed:
        sys.exit(f"real files: not to be had: {', '.join(failed)}")


def _is_here(source: Source) -> bool:
    said = source.place / _COMMIT
    return said.is_file() and said.read_text() == source.commit


def _has(source: Source, clones: str | None) -> bool:
    shutil.rmtree(source.place, ignore_errors=True)
    source.place.mkdir(parents=True)
    try:
        missing = _copy(source, Path(clones)) if clones else _fetch(source)
    except (subprocess.CalledProcessError, FileNotFoundError) as exc:
        print(f"{source.name}: {exc}")
        return False
    print(
        f"{source.name}: {source.commit[:12]}" + (f", without {missing} files that the clone lacks" if missing else "")
    )
    (source.place / _COMMIT).write_text(source.commit)
    return True


def _fetch(source: Source) -> int:
    """The commit alone, and of its files those that are asked for; none is missing."""
    git = source.place / ".git"
    subprocess.run(["git", "init", "-q", str(source.place)], check=True)
    _git(git, "remote", "add", "origin", f"{_HOST}/{source.name}.git")
    _git(git, "config", "remote.origin.promisor", "true")
    _git(git, "fetch", "-q", "--depth", "1", "--filter", "blob:none", "origin", source.commit)
    _git(git, f"--work-tree={source.place}", "checkout", "-q", source.commit, "--", *source.folders)
    shutil.rmtree(git)
    return 0


def _clone_in(top: Path, source: Source) -> Path:
    """The git folder of a clone that has the commit, of those whose path names the repository.

    Raises:
        FileNotFoundError: there is none.
    """
    wanted = source.name.rpartition("/")[2].lower()
    for folder in _folders(top, _DEEPEST):
        git = folder if (folder / "objects").is_dir() else folder / ".git"
        is_its = wanted in str(folder.relative_to(top)).lower()
        if is_its and git.exists() and _git(git, "cat-file", "-e", f"{source.commit}^{{commit}}", check=False):
            return git
    raise FileNotFoundError(f"no clone below {top} has commit {source.commit[:12]}")


def _folders(top: Path, depth: int) -> Iterator[Path]:
    yield top
    if depth:
        for folder in sorted(path for path in top.iterdir() if path.is_dir() and path.name != ".git"):
            yield from _folders(folder, depth - 1)


def _git(git: Path, *arguments: str, check: bool = True) -> bool:
    command = ["git", f"--git-dir={git}", *arguments]
    return subprocess.run(command, check=check, stderr=None if check else subprocess.DEVNULL).returncode == 0


def _copy(source: Source, top: Path) -> int:
    """Write the files of a clone, without running anything of it; how many it lacks."""
    git = _clone_in(top, source)
    listed = ["git", f"--git-dir={git}", "ls-tree", "-r", "-z", source.commit, "--", *source.folders]
    rows = subprocess.run(listed, check=True, capture_output=True).stdout.decode().split("\0")[:-1]
    entries = [(row.split()[2], row.partition("\t")[2]) for row in rows if row.startswith("100")]
    command, missing = ["git", f"--git-dir={git}", "cat-file", "--batch"], 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin is not None and reader.stdout is not None
        for digest, name in entries:
            reader.stdin.write(f"{digest}\n".encode())
            reader.stdin.flush()
            *_, size = reader.stdout.readline().split()
            if not size.isdigit():
                missing += 1
                continue
            file = source.place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(reader.stdout.read(int(size) + 1)[:-1])
    return missing


if __name__ == "__main__":
    main()
