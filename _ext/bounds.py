"""Whether the bound of a claim checks its sentence, which the build asks of every claim."""

from __future__ import annotations

import math
import re

# How the sentence of a claim compares: that its number is an amount, and in which sense.
AMOUNT = re.compile(
    r"\bby (this|so)( factor)?\b|, in (points|clicks)\b"
    r"|\b(this|so (many|much)) (\w+ )?(points|clicks|percentage|share|more|less|fewer)\b"
)
DIRECTED = re.compile(
    r"\b(ahead|behind|more|less|fewer|higher|lower|larger|smaller|longer|shorter|faster|slower"
    r"|exceeds|falls?|rises?|raises?|adds?|gains?|brings?|worth|loses?|lost|costs|leads?)\b"
)
DIFFERS = re.compile(r"\b(differs?|changes?|minus|off)\b")
CAPPED = re.compile(r"\b(at most|less than this|only (this|so))\b")
FLOORED = re.compile(r"\bat least\b")


def unbound(record: dict) -> str:
    """Say what a claim's bound must do to check its sentence, or nothing if it does.

    "At most" needs an upper bound, "at least" a lower one. Two things of which one is ahead by so
    much need a bound that keeps the amount above zero, a factor above one. Two that differ by so
    much need a bound on either side of zero, or a margin around it.
    """
    sentence, low, high = (record[name] for name in ("sentence", "above", "below"))
    if record["held"].startswith("equal to"):
        low = high = record["range"][1]
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    amount = AMOUNT.search(sentence)
    if CAPPED.search(sentence):
        kept, wanted = high < math.inf, "be below something"
    elif FLOORED.search(sentence):
        kept, wanted = low > -math.inf, "be above something"
    elif amount and DIFFERS.search(sentence):
        kept = low >= 0 or high <= 0 or math.isfinite(high - low)
        wanted = "exclude zero or be a margin around it"
    elif amount and DIRECTED.search(sentence):
        least = 1 if amount[0].endswith("factor") else 0
        kept, wanted = low >= least, f"be above {least} or more"
    else:
        return ""
    return "" if kept else wanted
