"""Peak memory bandwidth of Apple's chips, which no interface tells: Apple's published figures, in GB/s.

Unknown stays unknown. The brand does not separate the bins of a Max: the number of GPU cores does.
"""

import re

# Generation, kind: GB/s, or by the number of GPU cores.
_PUBLISHED: dict[tuple[int, str], float | dict[int, float]] = {
    (1, ""): 68.25,
    (1, "Pro"): 200,
    (1, "Max"): 400,
    (1, "Ultra"): 800,
    (2, ""): 100,
    (2, "Pro"): 200,
    (2, "Max"): 400,
    (2, "Ultra"): 800,
    (3, ""): 100,
    (3, "Pro"): 150,
    (3, "Max"): {30: 300, 40: 400},
    (3, "Ultra"): 819,
    (4, ""): 120,
    (4, "Pro"): 273,
    (4, "Max"): {32: 410, 40: 546},
    (5, ""): 153,
    (5, "Pro"): 307,
    (5, "Max"): {32: 460, 40: 614},
}


def published_gb_per_s(chip: str | None, gpu_cores: int | None) -> tuple[float | None, str]:
    """The figure and its source, or None and why there is none.

    Args:
        chip: as macOS names it: "Apple M4 Max".
        gpu_cores: where known; needed where one name stands for several bins.
    """
    match = re.fullmatch(r"Apple M(\d+)(?: (Pro|Max|Ultra))?", chip or "")
    if match is None:
        return None, f"{chip or 'this chip'} is none of Apple's whose figure is published"
    found = _PUBLISHED.get((int(match[1]), match[2] or ""))
    if found is None:
        return None, f"no published figure for {chip}"
    if not isinstance(found, dict):
        return float(found), "published by Apple"
    if gpu_cores not in found:
        return None, f"{chip} comes with several; {gpu_cores or 'an unknown number of'} GPU cores name none"
    return float(found[gpu_cores]), "published by Apple"
