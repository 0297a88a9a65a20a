"""Forks the kernels of a build from one process, which has imported what several pages import.

Why our own: importing PyTorch, SciPy and Matplotlib takes four seconds of processor time, as much as the code
of many a page, and jupyter_client starts each kernel from nothing. Only Linux forks safely what has been
imported; elsewhere kernels start as always. The checks of the notebooks hold that a kernel of a reader's own
shows the same.
"""

from __future__ import annotations

import ast
import builtins
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import EntryPoint
from threading import Lock
from types import SimpleNamespace
from typing import Any

import psutil
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner
from nbformat import NotebookNode

NAME = "forked"
KERNEL = "ipykernel_launcher"


def imported_by_several(pages: Iterable[NotebookNode]) -> list[tuple[str, str]]:
    """Return the modules that at least two pages import, and the names of what they import from them."""
    count = Counter(found for page in pages for found in set(_imports(page)))
    return sorted(found for found, pages in count.items() if pages > 1)


def _imports(page: NotebookNode) -> Iterator[tuple[str, str]]:
    for cell in page.cells:
        if cell.cell_type != "code":
            continue
        with suppress(SyntaxError):  # it is for the page to fail
            for line in ast.parse(cell.source).body:
                if isinstance(line, ast.Import):
                    yield from ((name.name, "") for name in line.names)
                elif isinstance(line, ast.ImportFrom):
                    yield from ((line.module, name.name) for name in line.names)


class Parent:
    """The process that has imported these modules and names, and forks a kernel whenever it is asked to."""

    running: Parent | None = None

    def __init__(self, imports: list[tuple[str, str]]) -> None:
        self._lock = Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(imports)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the build, which ends its kernels
            text=True,
        )

    def fork(self, order: dict[str, Any]) -> int:
        """Fork a process, which runs a kernel with these arguments, folder and environment; return its id."""
        with self._lock:
            print(json.dumps(order), file=self._process.stdin, flush=True)
            return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def forked_kernels(pages: Iterable[NotebookNode]) -> Iterator[None]:
    """Fork the kernels that are started in the body of the `with` statement, if pages share an import."""
    imports = imported_by_several(pages)
    if not imports or sys.platform != "linux":
        yield
        return
    factory = KernelProvisionerFactory.instance()
    usual = factory.default_provisioner_name
    factory.provisioners[NAME] = EntryPoint(NAME, f"{__name__}:Forked", "")
    Parent.running = Parent(imports)
    factory.default_provisioner_name = NAME
    try:
        yield
    finally:
        factory.default_provisioner_name = usual
        Parent.running.close()


class Forked(LocalProvisioner):
    """Lets jupyter_client have a kernel that it did not start itself."""

    async def launch_kernel(
        self, cmd: list[str], **kwargs: Any
    ) -> KernelConnectionInfo:
        """Fork a kernel in place of starting its command."""
        arguments = cmd[cmd.index(KERNEL) :]
        environment = dict(kwargs.get("env") or os.environ)
        folder = str(kwargs.get("cwd") or os.getcwd())
        self.pid = Parent.running.fork(
            {"arguments": arguments, "environment": environment, "folder": folder}
        )
        self.process, self.pgid, self.cwd = Process(self.pid), self.pid, folder
        return self.connection_info


class Process(psutil.Process):
    """What a provisioner asks of `subprocess.Popen`, for a process that another one has started."""

    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        """Return None while the process runs; how it ended only its parent knows."""
        return None if self.is_running() else 0


def serve() -> None:
    """Import, then fork a kernel for each line of the standard input, until it ends."""
    del sys.path[0]  # this file's folder, which a kernel does not search
    # What packages ask for when they are imported: the answers of a kernel.
    os.environ["JPY_PARENT_PID"] = str(os.getpid())
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    builtins.get_ipython = lambda: SimpleNamespace(kernel=None)
    for module, name in [("ipykernel.kernelapp", ""), *json.loads(sys.argv[1])]:
        with suppress(Exception):  # it is for the page to fail
            loaded = importlib.import_module(module)
            if name:
                getattr(loaded, name)
    del builtins.get_ipython
    gc.freeze()  # so that collections in the kernels leave the shared memory shared
    running: set[int] = set()
    signal.signal(signal.SIGCHLD, lambda *_: bury(running))
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            become_kernel(**json.loads(line))
        running.add(pid)
        print(pid, flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in running:  # none after a build that ended as it should
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        # Whoever inherits them may never ask, and then they would stay listed.
        os.waitpid(pid, 0)


def bury(running: set[int]) -> None:
    """Let children that have ended go."""
    for pid in tuple(running):
        if os.waitpid(pid, os.WNOHANG)[0]:
            running.discard(pid)


def become_kernel(
    arguments: list[str], environment: dict[str, str], folder: str
) -> None:
    """Be as a kernel is that was just started; end with it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0, closefd=False)  # the old one may hold further orders
    os.dup2(2, 1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment, JPY_PARENT_PID=str(os.getppid()))
    sys.argv = arguments
    runpy.run_module(KERNEL, run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    serve()
