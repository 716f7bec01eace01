"""Decompositions of matrices, and what they determine.

Factors are not unique (signs, phases, bases of subspaces). Only losses that do not depend on that choice have a
gradient. Where eigenvalues or singular values coincide, terms that divide by their difference are left out. That is
right for losses of the values, of the polar factor U @ Vh, and of projections on whole eigenspaces. It is not for those
to which the left out terms are 0 / 0: a matrix function V @ diag(f(w)) @ Vh, and second derivatives.

Rules after Giles (2008), "Collected matrix derivative results"; Walter and Lehmann (2012) for QR; Murray (2016) for
Cholesky; Townsend (2016) for singular values; Seeger et al. (2017), "Auto-differentiating linear algebra".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from numbagrad.engine.layout import is_half
from numbagrad.engine.mode import grad_enabled
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops.arithmetic import negative
from numbagrad.ops.batching import Batched
from numbagrad.ops.conversion import conj, real
from numbagrad.ops.diagonals import diagonal
from numbagrad.ops.indexing import getitem
from numbagrad.ops.joining import concatenate
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import Handed, primitive
from numbagrad.ops.products import adjoint, column, matmul, row
from numbagrad.ops.reductions import sum as sum_over
from numbagrad.ops.registry import stands_for
from numbagrad.ops.solving import _inv, _solve, divide_or_zero, from_triangle, hermitian_part, naming


def _lower(x: Tensor) -> Tensor:
    """The lower triangle with half of the diagonal."""
    n = x.shape[-1]
    return x * (np.tri(n, dtype=x.dtype) - np.eye(n, dtype=x.dtype) / 2)


@primitive(name="divide_by_pairs", wide="all")
def _divide_by_pairs(x, w, *, sign, n):
    """x[i, j] / (w[j] + sign * w[i]), and 0 where rounding may have made the divisor, for an n by n matrix."""
    pairs = w[..., None, :] + sign * w[..., :, None]
    return divide_or_zero.forward(x, pairs, tolerance=_rounding(w, n))


@_divide_by_pairs.vjp("x")
def _(g, w, sign, n):
    return _divide_by_pairs(g, conj(w), sign=sign, n=n)


@_divide_by_pairs.vjp("w")
def _(g, w, out, sign, n):
    part = _divide_by_pairs(g * conj(out), conj(w), sign=sign, n=n)
    return negative(sum_over(part, axis=-2) + sum_over(part, axis=-1) * sign)


def _rounding(w: np.ndarray, n: int) -> np.ndarray:
    """What rounding may make of a difference of two equal values, for each stack of them."""
    return n * np.finfo(w.dtype).eps * np.abs(w).max(-1, initial=0)[..., None, None]


def _columns(x: Tensor, start: int, stop: int | None = None) -> Tensor:
    return getitem(x, (..., slice(start, stop)))


def _rows(x: Tensor, start: int, stop: int | None = None) -> Tensor:
    return getitem(x, (..., slice(start, stop), slice(None)))


# ----- Cholesky -----


@primitive(name="cholesky", wide="all", casts="single")
def _cholesky(x, *, upper):
    with naming("cholesky", x):
        return np.linalg.cholesky(x, upper=upper)


@_cholesky.vjp("x")
def _(g, out, upper):
    lower, g = (adjoint(out), adjoint(g)) if upper else (out, g)
    inverse = _inv(lower)
    middle = _lower(matmul(adjoint(lower), g))
    return hermitian_part(matmul(adjoint(inverse), matmul(middle, inverse)))


@stands_for(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> Tensor:
    """Cholesky factor of a positive definite matrix, or of each in a stack.

    Parameters
    ----------
    a : array_like
        (..., n, n), Hermitian; only the lower triangle is read, or the upper one if `upper` is set.
    upper : bool, optional
        Give the upper factor.

    Returns
    -------
    Tensor
        Lower triangular L with ``L @ L.conj().T == a``, or upper triangular U with ``U.conj().T @ U == a``. Its
        gradient is Hermitian: both triangles are taken to vary together.

    Raises
    ------
    LinAlgError
        If a matrix is not positive definite.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.cholesky(ng.tensor([[4.0, 2.0], [2.0, 10.0]]))
    tensor([[2., 0.],
            [1., 3.]])
    """
    return _cholesky(as_tensor(a, "a"), upper=bool(upper))


# ----- QR -----


class QRResult(NamedTuple):
    """What `qr` returns."""

    Q: Tensor
    R: Tensor


@primitive(name="qr", wide="all", casts="single")
def _qr(x, *, mode):
    """Q and R of a matrix that is not wider than high."""
    with naming("qr", x):
        return tuple(np.linalg.qr(x, mode))


@_qr.vjp("x")
def _(g, out):
    (gq, gr), (q, r) = g, out
    n = r.shape[-1]
    if q.shape[-1] > n:
        rest = _columns(q, n)
        turned = matmul(rest, matmul(adjoint(_columns(gq, n)), _columns(q, 0, n)))
        q, r, gq, gr = _columns(q, 0, n), _rows(r, 0, n), _columns(gq, 0, n) - turned, _rows(gr, 0, n)
    middle = adjoint(_lower(adjoint(matmul(gr, adjoint(r)) - matmul(adjoint(q), gq))))
    return adjoint(_solve(r, adjoint(gq + matmul(q, middle + adjoint(middle)))))


def _qr_raw(x: Tensor) -> tuple[Tensor, Tensor]:
    if grad_enabled() and x.requires_grad:
        raise NotImplementedError("qr: no gradient flows through mode 'raw'; take another mode, or pass a.detach()")
    with naming("qr", x):
        h, tau = np.linalg.qr(x._data.astype(np.float32) if is_half(x.dtype) else x._data, "raw")
    return wrap(h), wrap(tau)


@stands_for(np.linalg.qr)
def qr(a: Any, mode: str = "reduced") -> Any:
    """QR decomposition of a matrix, or of each in a stack.

    Parameters
    ----------
    a : array_like
        (..., m, n).
    mode : {"reduced", "complete", "r", "raw"}, optional
        Q with min(m, n) columns, or with m; R alone; or LAPACK's reflectors, through which no gradient flows.

    Returns
    -------
    QRResult or Tensor
        Q and R; R alone for "r". The columns that "complete" adds have the gradient of their span.

    Raises
    ------
    LinAlgError
        By backward, if the first min(m, n) columns of `a` are linearly dependent.

    Examples
    --------
    >>> import numbagrad as ng
    >>> q, r = ng.linalg.qr(ng.tensor([[3.0], [4.0]]))
    >>> abs(r)
    tensor([[5.]])
    """
    x = as_tensor(a, "a")
    if mode not in ("reduced", "complete", "r", "raw"):
        raise ValueError(f"qr: unrecognized mode {mode!r}; give 'reduced', 'complete', 'r' or 'raw'")
    if mode == "raw":
        return _qr_raw(x)
    m, n = x.shape[-2:] if x.ndim > 1 else (0, 0)
    if m < n:
        q, r = _qr(_columns(x, 0, m), mode="reduced")
        r = concatenate([r, matmul(adjoint(q), _columns(x, m))], axis=-1)
    else:
        q, r = _qr(x, mode="complete" if mode == "complete" else "reduced")
    return r if mode == "r" else QRResult(q, r)


# ----- Singular values -----


class SVDResult(NamedTuple):
    """What `svd` returns."""

    U: Tensor
    S: Tensor
    Vh: Tensor


@primitive(name="svd", wide="all", casts="single")
def _svd(x, *, full_matrices):
    with naming("svd", x):
        return tuple(np.linalg.svd(x, full_matrices))


@_svd.vjp("x")
def _(g, out):
    (gu, gs, gvh), (u, s, vh) = g, out
    (m, n), k = (u.shape[-2], vh.shape[-1]), s.shape[-1]
    u, gu = _first_columns(u, gu, k)
    v, gv = _first_columns(adjoint(vh), adjoint(gvh), k)
    of_u, of_v = _skew(matmul(adjoint(u), gu)), _skew(matmul(adjoint(v), gv))
    # What a rotation of U and V together does to the loss, which is nothing where two singular values coincide, ...
    together = _divide_by_pairs((of_u + of_v) * 0.5, s, sign=-1, n=max(m, n))
    # ... and what turning them against each other does, which stays finite there.
    against = _divide_by_pairs((of_u - of_v) * 0.5, s, sign=1, n=max(m, n))
    left = matmul(u, together + against) + u * row(gs)
    tolerance = _rounding(s._data, max(m, n))
    if m > k:
        left = left + _outside(u, divide_or_zero(gu, row(s), tolerance=tolerance))
    grad = matmul(left, adjoint(v))
    if n > k:
        grad = grad + matmul(u, adjoint(_outside(v, divide_or_zero(gv, row(s), tolerance=tolerance))))
    return grad


def _skew(x: Tensor) -> Tensor:
    return x - adjoint(x)


def _outside(basis: Tensor, x: Tensor) -> Tensor:
    """The part of the columns of `x` that is orthogonal to `basis`."""
    return x - matmul(basis, matmul(adjoint(basis), x))


def _first_columns(q: Tensor, g: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The first k columns of a unitary matrix and their gradient: the others follow them, orthogonal to them."""
    if q.shape[-1] == k:
        return q, g
    first, rest = _columns(q, 0, k), _columns(q, k)
    return first, _columns(g, 0, k) - matmul(rest, matmul(adjoint(_columns(g, k)), first))


@stands_for(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Singular value decomposition of a matrix, or of each in a stack.

    Parameters
    ----------
    a : array_like
        (..., m, n).
    full_matrices : bool, optional
        Give U and Vh as square matrices.
    compute_uv : bool, optional
        Give U and Vh at all.
    hermitian : bool, optional
        Read the lower triangle of `a` only, as that of a Hermitian matrix.

    Returns
    -------
    SVDResult or Tensor
        U, S in descending order, and Vh, so that ``(U * S) @ Vh == a`` for ``full_matrices=False``; S alone without
        `compute_uv`.

    Notes
    -----
    Only losses that do not depend on the signs (phases) of the columns of U and rows of Vh, nor on the bases chosen
    where singular values coincide or in the added columns and rows, have a gradient. Terms that divide by a difference
    of coinciding singular values, or by one that is 0, are left out; see :func:`eigh`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.svd(ng.tensor([[3.0, 0.0], [0.0, 4.0]])).S
    tensor([4., 3.])
    """
    x = as_tensor(a, "a")
    if hermitian:
        x = from_triangle(x)
    return SVDResult(*_svd(x, full_matrices=bool(full_matrices))) if compute_uv else svdvals(x)


@primitive(name="svdvals", wide="all", casts="single")
def _svdvals(x):
    with naming("svdvals", x):
        u, s, vh = np.linalg.svd(x, full_matrices=False)
    return Handed(s, u=u, vh=vh)


@_svdvals.vjp("x")
def _(g, x, u, vh):
    u, _, vh = _svd(x, full_matrices=False) if grad_enabled() else (wrap(u), None, wrap(vh))
    return matmul(u * row(g), vh)


@stands_for(np.linalg.svdvals)
def svdvals(x: Any, /) -> Tensor:
    """Singular values of a matrix, or of each in a stack, in descending order.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.svdvals(ng.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor([4., 3.])
    """
    x = as_tensor(x, "x")
    if _recorded(x):
        return _svdvals(x)
    with naming("svdvals", x):
        return wrap(np.linalg.svd(x._data, compute_uv=False))


def _recorded(x: Tensor) -> bool:
    """Whether the vectors, which the gradient of the values needs, are worth computing; NumPy takes no 16 bits."""
    return (grad_enabled() and x.requires_grad) or is_half(x.dtype) or type(x) is Batched


# ----- Eigenvalues of Hermitian matrices -----


class EighResult(NamedTuple):
    """What `eigh` returns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@primitive(name="eigh", wide="all", casts="single")
def _eigh(x, *, uplo):
    with naming("eigh", x):
        return tuple(np.linalg.eigh(x, uplo))


@_eigh.vjp("x")
def _(g, out):
    (gw, gv), (w, v) = g, out
    vh = adjoint(v)
    turned = _divide_by_pairs(matmul(vh, gv), w, sign=-1, n=w.shape[-1])
    return hermitian_part(matmul(matmul(v, turned) + v * row(gw), vh))


@stands_for(np.linalg.eigh)
def eigh(a: Any, UPLO: str = "L") -> EighResult:
    """Eigenvalues and eigenvectors of a Hermitian matrix, or of each in a stack.

    Parameters
    ----------
    a : array_like
        (..., n, n).
    UPLO : {"L", "U"}, optional
        The triangle that is read.

    Returns
    -------
    EighResult
        Eigenvalues in ascending order, and eigenvectors as columns.

    Notes
    -----
    The gradient is Hermitian: both triangles are taken to vary together. Losses may not depend on the signs (phases)
    of eigenvectors, nor on the basis chosen where eigenvalues coincide. There, terms that divide by their difference
    are left out, which is right for losses of eigenvalues and of projections on whole eigenspaces, but not for matrix
    functions such as ``v @ diag(f(w)) @ v.conj().T``, nor for second derivatives.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([[2.0, 0.0], [0.0, 2.0]], requires_grad=True)
    >>> ng.linalg.eigh(x).eigenvalues.sum().backward()
    >>> x.grad
    tensor([[1., 0.],
            [0., 1.]])
    """
    return EighResult(*_eigh(as_tensor(a, "a"), uplo=_triangle("eigh", UPLO)))


def _triangle(name: str, uplo: str) -> str:
    if uplo.upper() not in ("L", "U"):
        raise ValueError(f"{name}: UPLO argument must be 'L' or 'U', got {uplo!r}")
    return uplo.upper()


@primitive(name="eigvalsh", wide="all", casts="single")
def _eigvalsh(x, *, uplo):
    with naming("eigvalsh", x):
        w, v = np.linalg.eigh(x, uplo)
    return Handed(w, v=v)


@_eigvalsh.vjp("x")
def _(g, x, uplo, v):
    v = _eigh(x, uplo=uplo)[1] if grad_enabled() else wrap(v)
    return hermitian_part(matmul(v * row(g), adjoint(v)))


@stands_for(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: str = "L") -> Tensor:
    """Eigenvalues of a Hermitian matrix, or of each in a stack, in ascending order. See :func:`eigh`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.eigvalsh(ng.tensor([[0.0, 2.0], [2.0, 0.0]]))
    tensor([-2.,  2.])
    """
    x, uplo = as_tensor(a, "a"), _triangle("eigvalsh", UPLO)
    if _recorded(x):
        return _eigvalsh(x, uplo=uplo)
    with naming("eigvalsh", x):
        return wrap(np.linalg.eigvalsh(x._data, uplo))


# ----- Eigenvalues of any square matrix -----


class EigResult(NamedTuple):
    """What `eig` returns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def _check_independent(v: np.ndarray) -> None:
    s = np.linalg.svd(v, compute_uv=False)
    if (s[..., -1:] <= v.shape[-1] * np.finfo(s.dtype).eps).any():
        raise LinAlgError(
            "eig: eigenvectors are linearly dependent (the matrix is defective), so eigenvalues and eigenvectors have "
            f"no gradient; the matrices have shape {v.shape}"
        )


@primitive(name="eig", wide="all", casts="single")
def _eig(x):
    with naming("eig", x):
        return tuple(np.linalg.eig(x))


@_eig.vjp("x")
def _(g, out):
    # The columns have length one, so what would lengthen them is taken out.
    (gw, gv), (w, v) = g, out
    _check_independent(v._data)
    vh = adjoint(v)
    turned = matmul(vh, gv)
    turned = turned - matmul(vh, v) * row(real(diagonal(turned, 0, -2, -1)))
    turned = _divide_by_pairs(turned, conj(w), sign=-1, n=w.shape[-1])
    return _solve(vh, matmul(turned, vh) + column(gw) * vh)


@stands_for(np.linalg.eig)
def eig(a: Any) -> EigResult:
    """Eigenvalues and right eigenvectors of a square matrix, or of each in a stack.

    Parameters
    ----------
    a : array_like
        (..., n, n).

    Returns
    -------
    EigResult
        Eigenvalues, and eigenvectors of length one as columns; complex unless all eigenvalues are real.

    Raises
    ------
    LinAlgError
        By backward, if there is no full set of eigenvectors.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.eig(ng.tensor([[1.0, 1.0], [0.0, 2.0]])).eigenvalues
    tensor([1., 2.])
    """
    return EigResult(*_eig(as_tensor(a, "a")))


@primitive(name="eigvals", wide="all", casts="single")
def _eigvals(x):
    with naming("eigvals", x):
        w, v = np.linalg.eig(x)
    return Handed(w, v=v)


@_eigvals.vjp("x")
def _(g, x, v):
    _check_independent(v)
    vh = adjoint(_eig(x)[1] if grad_enabled() else wrap(v))
    return _solve(vh, column(g) * vh)


@stands_for(np.linalg.eigvals)
def eigvals(a: Any) -> Tensor:
    """Eigenvalues of a square matrix, or of each in a stack; complex unless all are real. See :func:`eig`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.eigvals(ng.tensor([[1.0, 1.0], [0.0, 2.0]]))
    tensor([1., 2.])
    """
    x = as_tensor(a, "a")
    if _recorded(x):
        return _eigvals(x)
    with naming("eigvals", x):
        return wrap(np.linalg.eigvals(x._data))


__all__ = ["cholesky", "eig", "eigh", "eigvals", "eigvalsh", "qr", "svd", "svdvals"]
