"""Times of numbagrad beside NumPy, PyTorch, HIPS autograd and JAX: `python -m benchmarks`; see docs/benchmarks.md."""
