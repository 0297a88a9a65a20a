"""Agents: what chooses a product, one module a family, all with one protocol.

`Agent` in `base` says what they share; an agent of your own needs only ``select`` and ``update``.

Arguments that do not fit raise a TypeError or a ValueError, which names the argument, what came and what
was wanted; the agent is then unchanged.
"""

from zoolib._support.extras import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
