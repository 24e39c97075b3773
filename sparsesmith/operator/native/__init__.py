"""libsparsesmith_op, the operator's C library: its sources, what builds it, and the way to it from Python."""
