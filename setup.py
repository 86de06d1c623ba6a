"""Builds what pyproject.toml declares, and the C engine where a compiler is: else the package runs on the Python twin.

`mstxkit.pth` goes beside the package: in wheels and in editable installs. It is listed in RECORD in both, so that
uninstalling takes it away.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

SOURCE = Path("mstxkit/bootstrap/mstxkit.pth")
NATIVE = Path("mstxkit/engine/native")
ENGINE = Extension(
    "mstxkit.engine.native.hot",
    sources=[str(NATIVE / "hot.c")],  # which includes all others: one unit
    depends=sorted(str(path) for path in NATIVE.glob("*.[ch]")),
    extra_compile_args=["-O2", "-fvisibility=hidden", "-fno-strict-aliasing", "-Wall", "-Wextra"],
    extra_link_args=["-lpthread"],
    optional=True,
)


class BuildWithPth(build_py):
    """Copies the `.pth` to the top of what becomes the wheel."""

    def run(self) -> None:
        """Build the package, then add the file."""
        super().run()
        if not self.editable_mode:
            self.copy_file(str(SOURCE), self._target())

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """What was built, the file too."""
        outputs: list[str] = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else [*outputs, self._target()]

    def _target(self) -> str:
        return os.path.join(self.build_lib, SOURCE.name)


class EditableWithPth(editable_wheel):
    """Adds the `.pth` to the wheel that stands for an editable install: setuptools puts only modules there."""

    def run(self) -> None:
        """Make the wheel, then add the file."""
        super().run()
        for wheel in Path(self.dist_dir).glob("*editable*.whl"):
            add_file(wheel, SOURCE.name, SOURCE.read_bytes())


def add_file(wheel: Path, name: str, content: bytes) -> None:
    """Write a wheel anew with one more file at its top, and in its RECORD."""
    draft = wheel.with_name(wheel.name + ".draft")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.infolist():
            data = old.read(member)
            if member.filename.endswith(".dist-info/RECORD"):
                new.writestr(name, content)
                data = f"{record_line(name, content)}\n".encode() + data
            if member.filename != name:
                new.writestr(member, data)
    draft.replace(wheel)


def record_line(name: str, content: bytes) -> str:
    """A file's line in RECORD: name, urlsafe SHA-256 without padding, size."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"


setup(ext_modules=[ENGINE], cmdclass={"build_py": BuildWithPth, "editable_wheel": EditableWithPth})
