"""Files that are written whole or not at all."""

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
            file.flush()
            # Else a power cut could leave the new name and no content.
            os.fsync(file.fileno())
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
