"""nbval, whose cells fail as soon as their kernel has died; by itself it waits until their time is up.

Run as a file, in place of ``python -m pytest``: nothing of the repository comes on the path of its kernels.
"""

import sys
import time
from queue import Empty

import pytest
from nbval.kernel import RunningKernel

LOOK_EVERY_S = 1
wait = RunningKernel.await_reply


def await_reply(self: RunningKernel, msg_id: str, timeout: float) -> None:
    """Wait for a reply as long as there is somebody to give it."""
    end = time.monotonic() + timeout
    while True:
        try:
            return wait(self, msg_id, LOOK_EVERY_S)
        except Empty:
            if not self.is_alive():
                raise RuntimeError("the kernel died while it ran the cell") from None
            if time.monotonic() > end:
                raise


if __name__ == "__main__":
    RunningKernel.await_reply = await_reply
    sys.exit(pytest.main())
