"""How near two encodings of the same rows are, whatever the processor and wherever a row lies in its batch."""

import numpy as np
import numpy.typing as npt


def assert_same_release(one: npt.ArrayLike, other: npt.ArrayLike) -> None:
    """Assert what `FairFlow.transform` promises: the same float32 number, up to a tie.

    A matrix product rounds by the kernel that computes it and by the place of a row in its batch, so float64 numbers
    agree to about 1e-12. Rounded to float32 they are the same number, or neighbours where the rounding lies on a tie.
    """
    one, other = (np.asarray(values, dtype=np.float64) for values in (one, other))
    np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    below, above = (f(one, other).astype(np.float32) for f in (np.minimum, np.maximum))
    apart = below != above
    np.testing.assert_array_equal(np.nextafter(below, np.float32(np.inf))[apart], above[apart])
