"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_whole(
    path: str | os.PathLike[str], write: Callable[[BinaryIO], object]
) -> None:
    """Call `write` on a new file and put it in the place of `path` when it is complete.

    Who may read and write `path` may do so afterwards; a link there is replaced, not followed.
    """
    path = Path(path)
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        with new.open("xb") as file:
            if path.is_file() and not path.is_symlink():
                new.chmod(path.stat().st_mode & 0o777)  # while there is nothing to read
            write(file)
            file.flush()
            os.fsync(file.fileno())  # else a power cut could leave it without content
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
