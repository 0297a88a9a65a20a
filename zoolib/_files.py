"""Files that are written whole or not at all, and lines that are on disk once they are appended."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_whole(
    path: str | os.PathLike[str], write: Callable[[BinaryIO], object]
) -> None:
    """Call `write` on a new file and put it in the place of `path` when it is complete."""
    path = Path(path)
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=path.name, delete=False
    ) as file:
        try:
            write(file)
            _to_disk(file)  # or a power cut could leave the new name and no content
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def append_line(path: str | os.PathLike[str], line: bytes) -> None:
    """Append a line to a file; it is on disk when this returns."""
    with open(path, "ab") as file:
        file.write(line + b"\n")
        _to_disk(file)


def _to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
