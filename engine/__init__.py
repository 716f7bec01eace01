"""Graph logic in plain Python: tensors, nodes, the backward sweep. Knows no op and no Numba."""
