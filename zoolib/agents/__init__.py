"""Agents, which choose products: one module per family, all with the same interface.

`Agent` in `base` is their base class; an agent of your own needs only ``select`` and ``update``.

Invalid arguments raise a TypeError or a ValueError that names the argument, the value given and the value
expected; the agent is then unchanged.
"""

from zoolib._support.extras import attach_stub

__getattr__, __dir__ = attach_stub(__name__, __file__)
