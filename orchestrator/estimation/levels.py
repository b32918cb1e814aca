"""Arms' and prompts' levels, taken out of a series of trials by a robust fit. Pure."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.estimation.inversion import Floats

Integers = npt.NDArray[np.intp]

HUBER_FIT = 1.345  # 95 % efficient for normal noise (Huber 1981)
FIT_STEPS = 5
CELL_ROUNDS = 4  # with fewer rounds of a prompt, arms and prompts are fitted as a sum instead of each pair its own
NORMAL_MAD = 0.6745  # median of |x| for standard normal x
SMALL = 1e-12  # on the log scale: less is rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelFit:
    """The part removed from a series of n values before its labels are used: drift, arms' and prompts' levels."""

    basis: Floats  # (n - 1, k) orthonormal, of the space that differences of the levels span

    def residuals(self, differences: Floats) -> Floats:
        """Residuals of the robust fit of all columns at once, by Huber's algorithm with modified residuals.

        Least squares first; then, in each step, the residuals are clipped and fitted again. The basis stays the same,
        so that a column costs two products per step.
        """
        residual: Floats = differences - self.basis @ (self.basis.T @ differences)
        for step in range(FIT_STEPS):
            if step % 2 == 0:
                bound = HUBER_FIT * self._scale(residual)
            residual = residual - self.basis @ (self.basis.T @ np.minimum(np.maximum(residual, -bound), bound))
        return residual

    def _scale(self, residual: Floats) -> Floats:
        """Return each column's scale: the median of |e|, the k smallest left out, because a fit can make
        so many of them vanish (Maronna, Martin and Yohai 2006, section 4.4.2). The mean if even that is 0."""
        sizes = np.abs(residual)
        fitted = min(self.basis.shape[1], len(sizes) - 1)
        middle = fitted + (len(sizes) - fitted) // 2
        median: Floats = np.partition(sizes, middle, axis=0)[middle] / NORMAL_MAD
        if (median > SMALL).all():
            return median
        scale: Floats = np.where(median > SMALL, median, np.maximum(sizes.mean(axis=0), SMALL))
        return scale


def fit_levels(arms: Integers, rounds: Integers, prompts: Integers | None) -> LevelFit:
    """The fit of arms' and prompts' levels, one element per trial in time order; arms under test share a number."""
    steps = np.diff(level_columns(arms, rounds, prompts), axis=0)
    return LevelFit(basis=_orthonormal(np.concatenate([np.ones((len(arms) - 1, 1)), steps], axis=1)))


def level_columns(arms: Integers, rounds: Integers, prompts: Integers | None) -> Floats:
    """Indicators of each value's level, the first level the base, shape (n, levels - 1).

    Each arm at each prompt has a level of its own once every prompt has `CELL_ROUNDS` rounds; with fewer, arms and
    prompts add up.
    """
    if prompts is None:
        return _indicators(arms)
    if _rounds_of_rarest(prompts, rounds) >= CELL_ROUNDS:
        return _indicators(arms * (int(prompts.max()) + 1) + prompts)
    return np.concatenate([_indicators(arms), _indicators(prompts)], axis=1)


def _indicators(codes: Integers) -> Floats:
    groups = np.unique(codes)[1:]
    columns: Floats = (codes[:, None] == groups[None, :]).astype(np.float64)
    return columns


def _rounds_of_rarest(prompts: Integers, rounds: Integers) -> int:
    pairs = np.unique(np.stack([prompts, rounds]), axis=1)
    return int(np.unique(pairs[0], return_counts=True)[1].min())


def _orthonormal(columns: Floats) -> Floats:
    """A basis of what the columns span, by Cholesky of their products: many times faster than QR for long columns."""
    try:
        lower = np.linalg.cholesky(columns.T @ columns)
        sizes = np.diagonal(lower)
        if sizes.min() > 1e-4 * sizes.max():
            return np.ascontiguousarray(np.linalg.solve(lower, columns.T).T)
    except np.linalg.LinAlgError:
        pass
    basis, upper = np.linalg.qr(columns)
    # A column that the ones before it already span leaves rounding on the diagonal, and no direction of its own.
    return basis[:, np.abs(np.diagonal(upper)) > 1e-9]
