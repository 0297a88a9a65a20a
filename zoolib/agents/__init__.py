"""Agents: what chooses a product, one module a family, all with one protocol.

`Agent` in `protocol` says what they share; an outsider needs only ``select`` and ``update``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
