"""Linear systems: inverses, solutions, determinants. Rules after Giles (2008), "Collected matrix derivative results".

Where a formula divides by a determinant, it is written with cofactors, so singular matrices have gradients too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from numbagrad.engine.autograd import grad as gradients
from numbagrad.engine.layout import kind_of
from numbagrad.engine.mode import enable_grad, grad_enabled
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops.arithmetic import absolute, negative, square, where
from numbagrad.ops.conversion import clone, conj, imag
from numbagrad.ops.operands import as_tensor, eps_of
from numbagrad.ops.primitive import Handed, primitive
from numbagrad.ops.products import adjoint, column, matmul, scaled, trace, vector
from numbagrad.ops.reductions import sum as sum_over
from numbagrad.ops.registry import stands_for
from numbagrad.ops.shape import matrix_transpose


class naming:
    """A context that tells the user which function, and which shapes, NumPy's error is about."""

    __slots__ = ("arrays", "name")

    def __init__(self, name: str, *arrays: Any) -> None:
        self.name = name
        self.arrays = arrays

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, where: Any) -> None:
        if isinstance(error, (LinAlgError, ValueError)):
            said = str(error).removeprefix(f"{self.name}: ").partition(", with gufunc")[0]
            shapes = " and ".join(str(np.shape(a)) for a in self.arrays)
            raise type(error)(f"{self.name}: {said}; got shape {shapes}") from None


def hermitian_part(x: Tensor) -> Tensor:
    """Half the sum with the adjoint."""
    return (x + adjoint(x)) * 0.5


@primitive(name="divide_or_zero", wide="all")
def divide_or_zero(x, y, *, tolerance):
    """x / y, and 0 where the absolute value of y is not larger than the tolerance."""
    shape, dtype = np.broadcast_shapes(x.shape, y.shape), np.result_type(x, y)
    return np.divide(x, y, out=np.zeros(shape, dtype), where=~(np.abs(y) <= tolerance))


@divide_or_zero.vjp("x")
def _(g, y, tolerance):
    return divide_or_zero(g, conj(y), tolerance=tolerance)


@divide_or_zero.vjp("y")
def _(g, y, out, tolerance):
    return negative(divide_or_zero(g * conj(out), conj(y), tolerance=tolerance))


# ----- Inverse and solution -----


@primitive(name="inv", wide="all", casts="single")
def _inv(x):
    with naming("inv", x):
        return np.linalg.inv(x)


@_inv.vjp("x")
def _(g, out):
    y = adjoint(out)
    return negative(matmul(y, matmul(g, y)))


@stands_for(np.linalg.inv)
def inv(a: Any) -> Tensor:
    """Inverse of a square matrix, or of each in a stack.

    Parameters
    ----------
    a : array_like
        (..., n, n).

    Returns
    -------
    Tensor

    Raises
    ------
    LinAlgError
        If a matrix is not square, or singular.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.inv(ng.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5 , 0.  ],
            [0.  , 0.25]])
    """
    return _inv(as_tensor(a, "a"))


@primitive(name="solve", wide="all", casts="single")
def _solve(a, b):
    """Solution of a @ x = b for a matrix (of columns) b."""
    with naming("solve", a, b):
        return np.linalg.solve(a, b)


@_solve.vjp("a")
def _(g, a, out):
    return negative(matmul(_solve(adjoint(a), g), adjoint(out)))


@_solve.vjp("b")
def _(g, a):
    return _solve(adjoint(a), g)


@stands_for(np.linalg.solve)
def solve(a: Any, b: Any) -> Tensor:
    """Solve ``a @ x == b``.

    Parameters
    ----------
    a : array_like
        (..., n, n).
    b : array_like
        A vector (n,), or matrices (..., n, k). Stacks broadcast.

    Returns
    -------
    Tensor

    Raises
    ------
    LinAlgError
        If a matrix is not square, or singular.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.solve(ng.tensor([[2.0, 0.0], [0.0, 4.0]]), [1.0, 1.0])
    tensor([0.5 , 0.25])
    """
    x, y = as_tensor(a, "a"), as_tensor(b, "b")
    return vector(_solve(x, column(y))) if y.ndim == 1 else _solve(x, y)


# ----- Least squares -----


@primitive(name="pinv", wide="all", casts="single")
def _pinv(x, *, rcond):
    with naming("pinv", x):
        return np.linalg.pinv(x, rcond)


@_pinv.vjp("x")
def _(g, x, out):
    # Golub and Pereyra (1973), for matrices of constant rank.
    y, yh, gh = out, adjoint(out), adjoint(g)
    outside_rows = matmul(gh - matmul(x, matmul(y, gh)), matmul(y, yh))
    outside_columns = matmul(matmul(yh, y), gh - matmul(matmul(gh, y), x))
    return outside_rows + outside_columns - matmul(yh, matmul(g, yh))


@stands_for(np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = np._NoValue) -> Tensor:
    """Moore-Penrose pseudo-inverse of a matrix, or of each in a stack.

    Parameters
    ----------
    a : array_like
        (..., m, n).
    rcond, rtol : float or array_like, optional
        Singular values below this part of the largest count as 0. Default: 1e-15; ``rtol=None`` means the larger side
        of a matrix times the dtype's epsilon.
    hermitian : bool, optional
        Read the lower triangle of `a` only, as that of a Hermitian matrix.

    Returns
    -------
    Tensor
        (..., n, m). Its gradient takes the rank for constant.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.pinv(ng.tensor([[2.0], [0.0]]))
    tensor([[0.5, 0. ]])
    """
    x = as_tensor(a, "a")
    if rcond is not None and rtol is not np._NoValue:
        raise ValueError("pinv: `rtol` and `rcond` can't be both set; give one of them")
    if rcond is None:
        rcond = 1e-15 if rtol is np._NoValue else default_tolerance(x) if rtol is None else rtol
    return _pinv(from_triangle(x) if hermitian else x, rcond=rcond)


def default_tolerance(x: Tensor) -> float:
    """Part of the largest singular value that rounding may make of a zero one."""
    dtype = x.dtype if kind_of(x.dtype) in "fc" else np.dtype(float)
    return max(x.shape[-2:]) * eps_of(dtype)


@primitive(name="from_triangle", wide="all")
def from_triangle(x):
    """The Hermitian matrix that has the lower triangle of `x`."""
    lower = np.tril(x, -1)
    return lower + lower.conj().swapaxes(-1, -2) + np.real(x) * np.eye(x.shape[-1], dtype=x.real.dtype)


@from_triangle.vjp("x")
def _(g):
    # As PyTorch: both triangles are taken to vary together.
    return hermitian_part(g)


@primitive(name="lstsq", wide="all", casts="single")
def _lstsq(a, b, *, rcond):
    """The shortest x that minimises the length of a @ x - b."""
    with naming("lstsq", a, b):
        out, _, rank, _ = np.linalg.lstsq(a, b, rcond)
    return Handed(out, rank=rank)


@_lstsq.vjp("a")
def _(g, a, b, out, rcond, rank):
    # The gradient of the pseudo-inverse, with each product by it solved for.
    z = _lstsq(adjoint(a), g, rcond=rcond)
    grad = matmul(b - matmul(a, out), adjoint(_lstsq(a, z, rcond=rcond))) - matmul(z, adjoint(out))
    if rank == a.shape[1]:
        return grad
    return grad + matmul(_lstsq(adjoint(a), out, rcond=rcond), adjoint(g - matmul(adjoint(a), z)))


@_lstsq.vjp("b")
def _(g, a, rcond):
    return _lstsq(adjoint(a), g, rcond=rcond)


class LstsqResult(NamedTuple):
    """What `lstsq` returns."""

    x: Tensor
    residuals: Tensor
    rank: Tensor
    s: Tensor


@stands_for(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: float | None = None) -> LstsqResult:
    """Least-squares solution of ``a @ x == b``: of all best ones the shortest.

    Parameters
    ----------
    a : array_like
        (m, n).
    b : array_like
        (m,) or (m, k).
    rcond : float, optional
        Singular values below this part of the largest count as 0. Default: the dtype's epsilon times max(m, n).

    Returns
    -------
    x : Tensor
        (n,) or (n, k).
    residuals : Tensor
        Squared lengths of ``b - a @ x``; empty if the rank is below n, or m is not above n.
    rank : Tensor
        Rank of `a`; no gradient flows.
    s : Tensor
        Singular values of `a`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.lstsq(ng.tensor([[1.0], [1.0]]), [1.0, 3.0]).x
    tensor([2.])
    """
    from numbagrad.ops.decompositions import svdvals

    x, y = as_tensor(a, "a"), as_tensor(b, "b")
    if x.ndim != 2 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0]:
        raise LinAlgError(f"lstsq: wants a of shape (m, n) and b of shape (m,) or (m, k), got {x.shape} and {y.shape}")
    rcond = default_tolerance(x) if rcond is None or rcond < 0 else rcond
    right = column(y) if y.ndim == 1 else y
    solution = _lstsq(x, right, rcond=rcond)
    s = svdvals(x)
    rank = int(np.sum(s._data > rcond * s._data.max(initial=0)))
    if rank == x.shape[1] < x.shape[0]:
        residuals = sum_over(square(absolute(right - matmul(x, solution))), axis=0)
    else:
        residuals = wrap(np.empty(0, s.dtype))
    return LstsqResult(vector(solution) if y.ndim == 1 else solution, residuals, wrap(np.asarray(rank, np.int32)), s)


# ----- Determinants -----


@primitive(name="det", wide="all")
def _det(x):
    with naming("det", x):
        return np.linalg.det(x)


@_det.vjp("x")
def _(g, x, out):
    return scaled(conj(_cofactors(x, det=out._data)), g)


@stands_for(np.linalg.det)
def det(a: Any) -> Tensor:
    """Determinant of a square matrix, or of each in a stack.

    The gradient is the matrix of cofactors, also where the determinant is 0.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([[0.0, 3.0], [0.0, 2.0]], requires_grad=True)
    >>> ng.linalg.det(x).backward()
    >>> x.grad
    tensor([[ 2.,  0.],
            [-3.,  0.]])
    """
    return _det(as_tensor(a, "a"))


@primitive(name="cofactors", wide="all")
def _cofactors(x, *, det):
    """The derivative of the determinant, which is known, by each element."""
    return _stacked(x, det, (), _by_inverse, _by_svd)


@_cofactors.vjp("x")
def _(g, x, det):
    return conj(_turn(x, conj(g), det=det))


@primitive(name="cofactors_along", wide="all")
def _turn(x, m, *, det):
    """The derivative of the cofactors of `x` in the direction `m`: linear in `m`, and symmetric."""
    return _stacked(x, det, (m,), _turn_by_inverse, _turn_by_svd)


@_turn.vjp("m")
def _(g, x, det):
    return conj(_turn(x, conj(g), det=det))


@_turn.vjp("x")
def _(g, x, m):
    # The third derivative of det: the cofactors as a composition of ops, differentiated twice.
    recorded = grad_enabled()
    if x.shape[-1] < 3:
        return x * 0
    with enable_grad():
        # A node of its own, because `m` may depend on x too.
        again = clone(x)
        cofactors = _composed_cofactors(again)
        (second,) = gradients([cofactors], [again], [conj(m)], create_graph=True)
        (third,) = gradients([conj(second)], [again], [g], create_graph=recorded)
    return third


def _composed_cofactors(x: Tensor) -> Tensor:
    """The cofactors by ops that can be differentiated at will."""
    det = _det(x)
    if _well_conditioned(x._data, det._data)[0].all():
        return scaled(matrix_transpose(_inv(x)), det)
    # Faddeev and LeVerrier: divides by numbers only, so singular matrices do not matter.
    n = x.shape[-1]
    eye = np.eye(n, dtype=x.dtype)
    m = x - column(column(trace(x, 0, -2, -1))) * eye
    for k in range(2, n):
        m = matmul(x, m)
        m = m - column(column(trace(m, 0, -2, -1) / k)) * eye
    return matrix_transpose(m) * (-1) ** (n - 1)


def _stacked(x, det, more, by_inverse, by_svd):
    """Cofactors of each matrix: by its inverse where that is accurate, by its singular values elsewhere."""
    with np.errstate(all="ignore"):
        if x.ndim == 2 and 0 < abs(det) < np.inf:
            # The usual case, without masks.
            inverse = np.linalg.inv(x)
            if _is_accurate(x, inverse):
                return by_inverse(det, inverse, *more)
        plain, inverse = _well_conditioned(x, det)
        out = np.full(x.shape, np.nan, x.dtype)
        out[plain] = by_inverse(det[plain], inverse, *(a[plain] for a in more))
        rest = ~plain & np.isfinite(x).all((-2, -1))
        if rest.any():
            u, s, vh = np.linalg.svd(x[rest])
            phase = (np.linalg.det(u) * np.linalg.det(vh))[:, None, None]
            out[rest] = phase * (u.conj() @ by_svd(u, s, vh, *(a[rest] for a in more)) @ vh.conj())
    return out


def _well_conditioned(x: np.ndarray, det: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of the matrices have an accurate inverse, and these inverses."""
    good = np.asarray(np.isfinite(det) & (det != 0))
    x = x[good]
    inverse = np.linalg.inv(x)
    accurate = _is_accurate(x, inverse)
    good[good] = accurate
    return good, inverse[accurate]


def _is_accurate(x: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Whether rounding has spoiled at most a quarter of the digits."""
    return _squared_norm(x) * _squared_norm(inverse) < np.finfo(x.dtype).eps ** -0.5


def _squared_norm(x: np.ndarray) -> np.ndarray:
    return np.einsum("...ij,...ij", x, x.conj()).real


def _by_inverse(det, inverse):
    return det[..., None, None] * inverse.swapaxes(-1, -2)


def _by_svd(u, s, vh):
    """For each singular value the product of the others, as a diagonal matrix."""
    others = np.where(np.eye(s.shape[-1], dtype=bool), 1, s[:, None, :]).prod(-1)
    return others[:, :, None] * np.eye(s.shape[-1], dtype=s.dtype)


def _turn_by_inverse(det, inverse, m):
    cofactors = _by_inverse(det, inverse)
    turn = (m @ inverse).swapaxes(-1, -2)
    return np.trace(turn, 0, -2, -1)[..., None, None] * cofactors - turn @ cofactors


def _turn_by_svd(u, s, vh, m):
    """Mixed minors: for a diagonal matrix each is a product of all but two of its elements."""
    m = u.conj().swapaxes(-1, -2) @ m @ vh.conj().swapaxes(-1, -2)
    others = _without_two(s)
    straight = (others @ np.diagonal(m, 0, -2, -1)[:, :, None]) * np.eye(s.shape[-1], dtype=s.dtype)
    return straight - others * m.swapaxes(-1, -2)


def _without_two(s):
    """In place i, j the product of all but the elements i and j of each row; 0 where i is j."""
    n = s.shape[-1]
    one = np.ones_like(s[:, :1])
    shifted = np.concatenate([one, s[:, :-1]], 1)
    before = shifted.cumprod(1)
    after = np.concatenate([one, s[:, :0:-1]], 1).cumprod(1)[:, ::-1]
    between = np.where(np.arange(n) > np.arange(n)[:, None] + 1, shifted[:, None, :], 1).cumprod(-1)
    upper = np.triu(before[:, :, None] * between * after[:, None, :], 1)
    return upper + upper.swapaxes(-1, -2)


class SlogdetResult(NamedTuple):
    """What `slogdet` returns."""

    sign: Tensor
    logabsdet: Tensor


@primitive(name="slogdet", wide="all")
def _slogdet(x):
    with naming("slogdet", x):
        return tuple(np.linalg.slogdet(x))


@_slogdet.vjp("x")
def _(g, x, out):
    (g_sign, g_log), (sign, logabsdet) = g, out
    if x.dtype.kind == "c":
        g_log = g_log + imag(conj(sign) * g_sign) * 1j
    singular = np.isneginf(logabsdet._data)
    if (singular & (g_log._data != 0)).any():
        raise LinAlgError(
            f"slogdet: log(abs(det)) has no gradient at a singular matrix; the matrices have shape {x.shape}"
        )
    if singular.any():
        # Those whose gradient nobody wants may not disturb the others.
        x = where(singular[..., None, None], np.eye(x.shape[-1], dtype=x.dtype), x)
    return scaled(adjoint(_inv(x)), g_log)


@stands_for(np.linalg.slogdet)
def slogdet(a: Any) -> SlogdetResult:
    """Sign, and logarithm of the absolute value, of the determinant of a matrix or of each in a stack.

    Parameters
    ----------
    a : array_like
        (..., n, n).

    Returns
    -------
    sign : Tensor
        1, -1, or 0 for singular matrices; of length 1 or 0 in the complex plane for complex ones.
    logabsdet : Tensor
        ``-inf`` for singular matrices.

    Raises
    ------
    LinAlgError
        If a matrix is not square; by backward, if the gradient of a singular one is wanted.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.slogdet(ng.tensor([[-1.0, 0.0], [0.0, 1.0]]))
    SlogdetResult(sign=tensor(-1.), logabsdet=tensor(0.))
    """
    return SlogdetResult(*_slogdet(as_tensor(a, "a")))


__all__ = ["det", "inv", "lstsq", "pinv", "slogdet", "solve"]
