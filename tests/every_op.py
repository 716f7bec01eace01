"""A call of every op of the table: what tests ask of each of them."""

import subprocess
import sys

import numpy as np

import numbagrad as ng
from numbagrad.ops import fft
from numbagrad.ops.elementwise import Elementwise
from numbagrad.ops.registry import OPS


def hermitian(x):
    return x + ng.conj(ng.matrix_transpose(x))


def positive(x):
    return x @ ng.matrix_transpose(x) + 3 * ng.eye(x.shape[-1])


def well(x):
    """A matrix with distinct real eigenvalues, far from singular."""
    return 0.1 * x + ng.diag(ng.arange(1.0, 1.0 + x.shape[-1]))


def _extreme_mean(h, x):
    return OPS["mean_of_extremes"](h, x, ng.max(x, axis=1), axes=(1,), keepdims=False)


INDEX = np.array([2, 0, 2])
PRIMITIVES = {
    "round_decimals": (lambda x: ng.round(x, 2) + x, (4,)),
    "modulus": (lambda x: abs(x + 1j * x), (4,)),
    "astype": (lambda x: ng.real(x.astype(complex) * (1 + 2j)) * x, (4,)),
    "clone": (lambda x: ng.clone(x) * x, (4,)),
    "real": (lambda x: ng.real((x + 1j) ** 2), (4,)),
    "imag": (lambda x: ng.imag((x + 1j) ** 3), (4,)),
    "conj": (lambda x: ng.real(ng.conj(x * (1 + 2j)) * x * 1j), (4,)),
    "sum": (lambda x: (x * x).sum(axis=1, keepdims=True) * x, (2, 3)),
    "spread": (lambda x: x.sum(axis=0) * x.sum(), (2, 3)),
    "mean": (lambda x: (x * x).mean(axis=0) * x.mean(), (2, 3)),
    "getitem": (lambda x: x[1:, ::-1] * x[0, 1] + x[..., None, 0].T, (3, 3)),
    "gather": (lambda x: x[INDEX] * x[:, INDEX] * x[INDEX, 1], (3, 3)),
    "place": (lambda x: x[np.array([True, False, True])] ** 2, (3, 2)),
    "scatter": (lambda x: x[[0, 0, 1]] ** 2 * x[[1, 0, 0], :], (3, 2)),
    "index_put": (lambda x, y: OPS["index_put"](x, y * y, index=(slice(None), 1)) * x, (3, 3), (3,)),
    "erase": (lambda x, y: OPS["index_put"](x * x, y, index=np.array([2, 0])) * x, (3, 3), (3,)),
    "mask": (lambda x, y: OPS["index_put"](x, y * y, index=np.array([0, 0])) * x, (3, 3), (2, 3)),
    "reshape": (lambda x: x.reshape(3, 2) @ x.ravel()[:2] * x.reshape(-1)[1], (2, 3)),
    "transpose": (lambda x: x.T @ x.transpose(0, 1) + ng.moveaxis(x, 0, 1)[:, :1], (2, 3)),
    "broadcast_to": (lambda x: ng.broadcast_to(x * x, (2, 4, 3)) * x, (3,)),
    "unstack": (lambda x: ng.unstack(x, axis=1)[0] * ng.unstack(x, axis=1)[2], (2, 3)),
    "stack": (lambda x, y: ng.stack([x * x, y, x * y], axis=1), (3,), (3,)),
    "concatenate": (lambda x, y: ng.concatenate([x * y[0], y], axis=1) ** 2, (2, 3), (2, 1)),
    "cumsum": (lambda x: ng.cumsum(x * x, axis=1) * x, (2, 3)),
    "cumprod": (lambda x: ng.cumprod(x, axis=1), (2, 3)),
    "products_before": (lambda x: ng.cumprod(x, axis=-1) ** 2, (4,)),
    "products_of_others": (lambda x: ng.prod(x, axis=1), (2, 3)),
    "recurrence": (lambda x: ng.cumprod(x, axis=0), (3, 2)),
    "shift": (lambda x: ng.cumprod(x, axis=0).sum(axis=0) ** 2, (3, 2)),
    "diff": (lambda x: ng.diff(x * x, axis=0), (3, 2)),
    "diff_transposed": (lambda x: ng.diff(x) ** 2, (4,)),
    "logsumexp": (lambda x: ng.logsumexp(x * x, axis=1), (2, 3)),
    "logsumexp_backward": (lambda x: ng.logsumexp(x, axis=0, keepdims=True) * x, (2, 3)),
    "softmax": (lambda x: ng.softmax(x, axis=1) ** 2, (2, 3)),
    "softmax_backward": (lambda x: ng.softmax(x, axis=0) * x, (2, 3)),
    "log_softmax": (lambda x: ng.log_softmax(x, axis=1) ** 2, (2, 3)),
    "log_softmax_backward": (lambda x: ng.log_softmax(x, axis=0) * x, (2, 3)),
    "var": (lambda x: ng.var(x, axis=0) * x, (3, 2)),
    "var_backward": (lambda x: ng.var(x * x, axis=1, keepdims=True), (3, 2)),
    "std": (lambda x: ng.std(x * x, axis=1), (3, 4)),
    "root_or_zero": (lambda x: OPS["root_or_zero"](x * x) * x, (3,)),
    "euclidean_norm": (lambda x: OPS["euclidean_norm"](x * x, axes=(1,), keepdims=False), (3, 2)),
    "prod": (lambda x: ng.prod(x) * x, (3,)),
    "extreme_backward": (lambda x: ng.max(x * x, axis=0) ** 2, (3, 2)),
    "mean_of_extremes": (lambda h, x: _extreme_mean(h, x * x) * x[:, 0], (3, 2), (3, 2)),
    "max": (lambda x: ng.max(x, axis=1) * x[:, 0], (3, 2)),
    "min": (lambda x: ng.min(x, axis=0) * x[0], (3, 2)),
    "roll": (lambda x: ng.roll(x, 1, axis=1) * x + ng.roll(x, (1, 2), axis=(0, 1)), (2, 3)),
    "pad": (lambda x: ng.pad(x * x, ((1, 0), (0, 2)), constant_values=2.0), (2, 3)),
    "repeat": (lambda x: ng.repeat(x * x, 2, axis=1), (2, 3)),
    "tile": (lambda x: ng.tile(x * x, (2, 1)), (2, 3)),
    "diagonal": (lambda x: ng.diagonal(x @ x, 1), (3, 3)),
    "onto_diagonal": (lambda x: ng.diagonal(x) ** 2, (3, 3)),
    "tril": (lambda x: ng.tril(x) @ x, (3, 3)),
    "triu": (lambda x: ng.triu(x, 1) @ x, (3, 3)),
    "contract": (lambda x, y: ng.einsum("ij,jk->ki", x, y) * x[0, 0], (2, 3), (3, 2)),
    "take_diagonals": (lambda x: ng.einsum("ii->i", x) ** 2, (3, 3)),
    "put_diagonals": (lambda x: ng.einsum("iij->ij", x) ** 2, (2, 2, 3)),
    "matmul": (lambda x, y: x @ y * x[0, 0], (2, 3), (3,)),
    "cross": (lambda x, y: ng.cross(x, y) * x, (2, 3), (3,)),
    "trace": (lambda x: ng.trace(x @ x, 1), (3, 3)),
    "divide_or_zero": (lambda x, y: OPS["divide_or_zero"](x * x, y, tolerance=1.0) * x, (3,), (3,)),
    "inv": (lambda x: ng.linalg.inv(well(x)), (3, 3)),
    "solve": (lambda x, y: ng.linalg.solve(well(x), y), (3, 3), (3,)),
    "pinv": (lambda x: ng.linalg.pinv(x), (4, 2)),
    "from_triangle": (lambda x: OPS["from_triangle"](x * x) * x, (3, 3)),
    "lstsq": (lambda x, y: ng.linalg.lstsq(x, y)[0], (4, 2), (4,)),
    "det": (lambda x: ng.linalg.det(well(x)) * x, (3, 3)),
    "cofactors": (lambda x: ng.linalg.det(x @ well(x)), (3, 3)),
    "cofactors_along": (lambda x: ng.linalg.det(well(x)) ** 2, (2, 2)),
    "slogdet": (lambda x: ng.linalg.slogdet(well(x))[1] * x, (3, 3)),
    "divide_by_pairs": (lambda x: ng.linalg.eigh(hermitian(well(x)))[1] ** 2, (3, 3)),
    "cholesky": (lambda x: ng.linalg.cholesky(positive(x)), (3, 3)),
    "qr": (lambda x: ng.linalg.qr(well(x))[1] ** 2, (3, 3)),
    "svd": (lambda x: ng.linalg.svd(well(x))[0] ** 2, (3, 3)),
    "svdvals": (lambda x: ng.linalg.svd(well(x), compute_uv=False) * x[0], (3, 3)),
    "eigh": (lambda x: ng.linalg.eigh(hermitian(well(x)))[0] ** 2, (3, 3)),
    "eigvalsh": (lambda x: ng.linalg.eigvalsh(hermitian(well(x))) ** 2, (3, 3)),
    "eig": (lambda x: ng.real(ng.linalg.eig(well(x))[0]) ** 2, (3, 3)),
    "eigvals": (lambda x: ng.real(ng.linalg.eigvals(well(x))) ** 2, (3, 3)),
    "power_norm": (lambda x: ng.linalg.norm(x, 3, axis=1) * x[:, 0], (3, 2)),
    "fft": (lambda x: abs(fft.fft(x * x)), (4,)),
    "rfft": (lambda x: abs(fft.rfft(x * x)), (5,)),
    "irfft": (lambda x: fft.irfft(x * (1 + 2j)) * x[0], (5,)),
    "arcsinh_complex": (lambda x: ng.real(ng.arcsinh(x * (1 + 2j))) * x, (3,)),
    "modf": (lambda x: ng.modf(x * x)[0] * x, (4,)),
    "ldexp": (lambda x: ng.ldexp(x, np.array([1, 2, 3])) * x, (3,)),
    "nextafter": (lambda x, y: OPS["nextafter"](x * x, y) * x, (2, 3), (3,)),
    "bessel_i": (lambda x: OPS["bessel_i"](x, order=1) * x, (3,)),
    "convolve": (lambda x, y: ng.convolve(x, y) ** 2, (4,), (2,)),
    "unwrap": (lambda x: ng.unwrap(x * 5, axis=1) * x, (2, 4)),
    "roots": (lambda x: ng.real(ng.roots(x * np.array([1.0, -9.0, 1.0]))) ** 2, (3,)),
    "bincount": (lambda x: ng.bincount(np.array([0, 1, 1]), x * x) ** 2, (3,)),
    "add_reduceat": (lambda x: np.add.reduceat(x * x, [0, 2], axis=1) ** 2, (2, 4)),
    "sums_at": (lambda x: OPS["sums_at"](x * x, places=np.array([0, 2, 2]), size=4) ** 2, (3,)),
    "resize_axis": (lambda x: abs(fft.fft(x * x, n=6)), (4,)),
}
WITHOUT_CALL = {
    "write_view": "an in-place write into a view: refused under vmap, tested in test_inplace.py",
}


def arguments(op, rng):
    """Arguments of an elementwise op from its range."""
    found = []
    for i, name in enumerate(op.params):
        low, high = op.sampling.of(i)
        values = rng.uniform(low, high, size=(3,))
        found.append(values > 0 if name in op.conditions else values)
    return found


def elementwise_ops():
    return [op for op in OPS.values() if isinstance(op, Elementwise)]


def primitives():
    """Those that `import numbagrad` declares, whatever else has been imported."""
    program = (
        "import numbagrad; from numbagrad.ops.registry import OPS; from numbagrad.ops.primitive import Primitive; "
        "print(*[name for name, op in OPS.items() if isinstance(op, Primitive)])"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
