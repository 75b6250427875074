"""What of a finding's evidence is told where there is little room: a screen takes a handful, a report all."""

from __future__ import annotations

from collections.abc import Sequence

#: So many facts are told of one finding.
MOST = 5

#: Beginnings of facts that only support others, those that say least first: what the replay was, what is told beside
#: the evidence anyway (the FP32 fact, the symptom), the range of what went in.
_SUPPORTING: tuple[tuple[str, ...], ...] = (
    ("reproduced", "seen in ", "the case was evaluated once more", "not reproduced"),
    ("true FP32 ", "the FP32 baseline ", "the loss is ", "outputs moved", "every output is"),
    ("on CUDA, ", "one rounding to "),
    ("input ", "weights ", "buffer "),
    ("from there: ",),
)


def most_telling(evidence: Sequence[str], most: int = MOST) -> tuple[tuple[str, ...], int]:
    """At most `most` facts of `evidence` in their order, the first always among them, and how many are left out.

    One fact too many is told rather than counted.
    """
    kept = list(range(len(evidence)))
    for beginnings in (*_SUPPORTING, ("",)):
        for index in reversed(kept[1:]):
            if len(kept) <= most + (len(evidence) == most + 1):
                return tuple(evidence[place] for place in kept), len(evidence) - len(kept)
            if evidence[index].startswith(beginnings):
                kept.remove(index)
    return tuple(evidence[place] for place in kept), len(evidence) - len(kept)
