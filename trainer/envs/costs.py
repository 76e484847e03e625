"""Relative time of a step of each task, so that workers get equal shares.

Measured, not computed, and shipped, not measured at the start: the environments are dealt before any of them
is made, and the same way each time. Only the ratios matter, which differ little between processors.
"""

from __future__ import annotations

STEP_COSTS = {
    "assembly-v3": 125,
    "basketball-v3": 95,
    "bin-picking-v3": 132,
    "box-close-v3": 172,
    "button-press-topdown-v3": 121,
    "button-press-topdown-wall-v3": 117,
    "button-press-v3": 208,
    "button-press-wall-v3": 112,
    "coffee-button-v3": 119,
    "coffee-pull-v3": 159,
    "coffee-push-v3": 127,
    "dial-turn-v3": 78,
    "disassemble-v3": 116,
    "door-close-v3": 89,
    "door-lock-v3": 81,
    "door-open-v3": 96,
    "door-unlock-v3": 85,
    "hand-insert-v3": 137,
    "drawer-close-v3": 88,
    "drawer-open-v3": 79,
    "faucet-open-v3": 86,
    "faucet-close-v3": 84,
    "hammer-v3": 129,
    "handle-press-side-v3": 91,
    "handle-press-v3": 102,
    "handle-pull-side-v3": 106,
    "handle-pull-v3": 79,
    "lever-pull-v3": 82,
    "pick-place-wall-v3": 142,
    "pick-out-of-hole-v3": 101,
    "pick-place-v3": 138,
    "plate-slide-v3": 98,
    "plate-slide-side-v3": 176,
    "plate-slide-back-v3": 81,
    "plate-slide-back-side-v3": 100,
    "peg-insert-side-v3": 134,
    "peg-unplug-side-v3": 130,
    "soccer-v3": 123,
    "stick-push-v3": 196,
    "stick-pull-v3": 232,
    "push-v3": 135,
    "push-wall-v3": 141,
    "push-back-v3": 102,
    "reach-v3": 75,
    "reach-wall-v3": 77,
    "shelf-place-v3": 127,
    "sweep-into-v3": 176,
    "sweep-v3": 108,
    "window-open-v3": 94,
    "window-close-v3": 91,
}
"""Microseconds of a step of the fast class: the mean over random actions and the scripted policy's, which
touch things; a policy in training is between the two."""
