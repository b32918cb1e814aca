"""The packages that run DFlash drafts on MLX, each brought into one form. Nothing of them is imported before a load.

| backend      | drafts | what it reports                                                                   |
|--------------|--------|-----------------------------------------------------------------------------------|
| mlx-dspark   | v1, v2 | a hook per verify step; drafts the whole block, verifies `block_size - 1` of it    |
| dflash       | v1, v2 | tokens per step; the proposals are read at the draft                              |
| dflash-mlx   | v1     | accepted tokens per cycle, at the end; widths and sources are read at its calls   |
"""

from workers.engines.dflash_backends.backend import Backend, LoadedDraft, Wanted
from workers.engines.dflash_backends.dflash_mlx import DflashMlx
from workers.engines.dflash_backends.dspark import Dspark
from workers.engines.dflash_backends.zlab import Zlab

__all__ = ["BACKENDS", "Backend", "LoadedDraft", "Wanted"]

BACKENDS: dict[str, type[Backend]] = {kind.DISTRIBUTION: kind for kind in (Dspark, Zlab, DflashMlx)}
