"""Whether two sides mean the same images by the same ids: by their content, or not at all."""

import hashlib
from collections.abc import Callable, Sequence

from robust0.auditing.rundata import CleanImages
from robust0.comparing.sides import Side, common_images
from robust0.errors import RunError
from robust0.wording import tidy

Shown = Callable[[Side, Side], bool]  # whether the dataset itself shows that both are from it


def require_same_images(sides: Sequence[Side], shown: Shown) -> None:
    """Refuse images that differ, and images of which nothing shows that they are the same.

    Equal fingerprints cover every pixel. Else the images that runs keep are compared (8 bits per
    value), and last the dataset is asked whether it holds both sets.
    """
    common_images(sides)  # refuses what ids and labels alone tell
    first = sides[0]
    for other in sides[1:]:
        if first.baseline.subject.data_fingerprint == other.baseline.subject.data_fingerprint:
            continue
        shared = set(first.baseline.ids) & set(other.baseline.ids)
        known = [_digests(side.clean) for side in (first, other)]
        kept = shared & known[0].keys() & known[1].keys()
        if wrong := sum(known[0][image] != known[1][image] for image in kept):
            raise RunError(
                f"{_pair(first, other)} are about different images: of {len(kept):,} common ids "
                f"{wrong:,} have other pixels",
                "audit or certify both on the same data",
            )
        if kept != shared and not shown(first, other):
            raise RunError(
                f"nothing shows that {_pair(first, other)} are about the same images",
                "compare run directories, which keep their images, or evaluate both on exactly "
                "the same images",
            )


def _digests(clean: CleanImages | None) -> dict[int, bytes]:
    if clean is None:
        return {}
    rows = clean.rows()
    return {image: hashlib.sha256(clean.images[row].tobytes()).digest()
            for image, row in rows.items()}  # fmt: skip


def _pair(first: Side, other: Side) -> str:
    return f"{tidy(first.source)} and {tidy(other.source)}"
