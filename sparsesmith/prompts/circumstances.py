"""What the encoder `profiled` sees beside the matrix: columns of the dense operand, size of a number, the device."""

import numpy as np
import numpy.typing as npt

from sparsesmith.elements import ELEMENTS
from sparsesmith_proto.message import ElementType

CIRCUMSTANCE_NAMES: tuple[str, ...] = (
    "log_dense_cols",
    "one_dense_col",
    "dense_cols_by_4",
    "dense_cols_by_32",
    "log_dense_row_bytes",
    "log_element_bytes",
    "device_known",
    "log_sms",
    "log_bandwidth",
)
"""In the order of `circumstance_features`."""


def circumstance_features(
    num_dense_cols: int, element_type: ElementType, num_sms: int | None, copy_bandwidth_gbs: float | None
) -> npt.NDArray[np.float32]:
    """Shape [len(CIRCUMSTANCE_NAMES)], scaled to about 0 to 2; zeros for a device of which nothing is known.

    `copy_bandwidth_gbs`: read plus written, 1e9 bytes a second.
    """
    element_bytes = ELEMENTS[element_type].num_bytes
    known = num_sms is not None and copy_bandwidth_gbs is not None
    return np.array(
        [
            np.log2(num_dense_cols) / 4,
            num_dense_cols == 1,
            num_dense_cols % 4 == 0,
            num_dense_cols % 32 == 0,
            np.log2(num_dense_cols * element_bytes) / 8,
            np.log2(element_bytes) / 4,
            known,
            np.log2(num_sms or 1) / 8 if known else 0.0,
            np.log2(copy_bandwidth_gbs or 1.0) / 8 if known else 0.0,
        ],
        np.float32,
    )
