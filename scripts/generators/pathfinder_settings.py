"""Pathfinder's settings, where each comes from, and which readings of the description were taken.

Tags: [S] the settings of LRA's Pathfinder32 or of the generator it used; [I] inferred; [M] from memory, not verified.
Lengths are pixels of the 32 x 32 image.

| setting | value | tag |
|---|---|---|
| image | 32 x 32; the occupancy mask starts with a border of 1 | S |
| paddle | length 2, thickness 0.5, margin 1; drawn at 2x, Lanczos down | S |
| marker | disc of radius 1.5, drawn at 2x, Lanczos down, value 1 | S |
| contour length | 14 paddles for each of the two target contours (the other levels: 6 and 9) | S |
| second seed | 7 from the first; first seed at least 14 from every side | S |
| continuity | 1.0: a paddle's turn d weighs cos²(d), at most 90° | S |
| distractors | 20 // length of them, each of contour length // 3 paddles: 5 of 4 at length 14 | S; at 6 and 9 I |
| contrast | distractors 2, targets 2 x 0.75 | S |
| one paddle size for all | as LRA's script does, not the class's default | I |
| tries | a paddle 3, a distractor 5; targets until they succeed | S; see below |
| grey levels | each image stretched to 0..255, as the original's image writer did | M |

Read into the description, where it leaves room [I]: every coordinate reached by a distance and an angle is rounded
up, but the candidates for the next paddle are the pixels nearest to the circle (16 of them at radius 3), and a
candidate's angle is that of its pixel. The dilated mask that weighs candidates is the mask's maximum within a disc of
the margin's radius. A seed's start is free where no pixel of its paddle's mask of at least 0.5 meets one of the mask
of at least 0.5. A paddle that does not fit is drawn again from the same weights. A distractor's last paddle joins the
mask when the distractor is done. A try for the two targets does not depend on the tries before it, so that repeating
until one succeeds gives what any limit on the tries followed by a fresh image would give.

One departure: the newest paddles are not yet in the mask, so that in 0.3 % of pairs both contours end on the same
pixel, where a marker belongs to both. Such a pair is tried again.
"""

from dataclasses import dataclass

SIZE = 32
PADDLE = 2
MARGIN = 1
THICKNESS = 0.5
SCALE = 2  # paddles and markers are drawn at this scale
MARKER = 1.5
BORDER = 1
SEED_DISTANCE = 7
TARGET_CONTRAST, DISTRACTOR_CONTRAST = 2 * 0.75, 2.0
PADDLE_TRIES, DISTRACTOR_TRIES = 3, 5
OVERLAP = 1.8  # the sum of mask and paddle's mask stays below it
LEAST_WEIGHT = 1e-4  # of all candidates together
LEAST_FREE = 0.01  # of all pixels, for another distractor
FREE = 0.5  # mask values from here on count as occupied by a seed


@dataclass(frozen=True)
class Pathfinder:
    """What differs between levels."""

    contour_length: int = 14
    distractor_length: int = 4
    distractors: int = 5
    continuity: float = 1.0
