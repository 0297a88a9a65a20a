"""Large catalogues and large networks, Chapter 5: product search, and doubts from many networks.

================== ====================================================================
module             contents
================== ====================================================================
`retrieval`        `ProductIndex`: the best of a million products; choice in two stages
`ensembles`        agents whose doubt is how far networks, or their parts, disagree
================== ====================================================================
"""

from zoolib._support.extras import attach_stub

__getattr__, __dir__ = attach_stub(__name__, __file__)
