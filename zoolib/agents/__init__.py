"""Agents: what chooses a product, one module a family, all with one protocol.

`Agent` in `base` says what they share; an agent of your own needs only ``select`` and ``update``.

Arguments that do not fit raise a TypeError or a ValueError, which names the argument, what came and what
was wanted; the agent is then unchanged.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
