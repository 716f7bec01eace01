"""Linear algebra under NumPy's names: norms, what is built from decompositions, and chains of products."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.linalg import LinAlgError

from numbagrad.engine.layout import is_half
from numbagrad.engine.mode import grad_enabled
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops import diagonals, products, reductions
from numbagrad.ops.arithmetic import absolute, divide, power, where
from numbagrad.ops.conversion import astype
from numbagrad.ops.decompositions import cholesky, eig, eigh, eigvals, eigvalsh, qr, svd, svdvals
from numbagrad.ops.indexing import getitem
from numbagrad.ops.logic import Flat
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.products import column, matmul, row, tensordot, vecdot
from numbagrad.ops.registry import register, stands_for
from numbagrad.ops.shape import matrix_transpose, reshape, squeeze, transpose
from numbagrad.ops.solving import det, divide_or_zero, inv, lstsq, pinv, slogdet, solve

# ----- Norms -----


@primitive(name="power_norm", wide="all")
def _power_norm(x, *, p, axes, keepdims):
    """The p-norm over some axes, p neither 0 nor infinite."""
    if p != 2:
        with np.errstate(divide="ignore"):
            return np.sum(np.abs(x) ** p, axis=axes, keepdims=keepdims) ** (1 / p)
    if len(axes) == x.ndim and not keepdims:
        return np.linalg.norm(x.reshape(-1))
    squares = x * x if x.dtype.kind == "f" else x.real * x.real + x.imag * x.imag
    return np.sqrt(np.sum(squares, axis=axes, keepdims=keepdims))


@_power_norm.vjp("x")
def _(g, x, out, p, axes, keepdims):
    if not keepdims:
        kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
        g, out = (t if not t.ndim else reshape(t, kept) for t in (g, out))
    # 0 where the norm or the element is 0, as in PyTorch. Ratios to the norm cannot overflow.
    if p == 2 and not grad_enabled():
        length = out._data
        length = np.where(length == 0, np.inf, length) if length.ndim else length or np.inf
        return wrap(g._data * (x._data / length))
    if p == 2:
        return g * divide_or_zero(x, out, tolerance=0)
    size = absolute(x)
    ratio = divide_or_zero(size, out, tolerance=0)
    zero = ratio._data == 0
    return g * divide_or_zero(x, size, tolerance=0) * where(zero, 0, power(where(zero, 1, ratio), p - 1))


@stands_for(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Norm of a vector or matrix, or of each in a stack.

    Parameters
    ----------
    x : array_like
        With `axis` left out it must be a vector or a matrix, unless `ord` is left out too: then all elements count
        as one vector.
    ord : number, inf, -inf, "fro" or "nuc", optional
        For vectors any number: ``sum(abs(x)**ord)**(1/ord)``, 0 counts elements. For matrices 1, inf (largest sum of
        a column, of a row), 2 (largest singular value), their negatives (smallest), "fro" (the default) or "nuc" (sum
        of the singular values).
    axis : int or pair of int, optional
        The axis of vectors, or the axes of matrices.
    keepdims : bool, optional
        Keep these axes, with length one.

    Returns
    -------
    Tensor
        Real. Where several elements are the largest they share the gradient; at 0 it is 0.

    Raises
    ------
    ValueError
        If there is no such norm.

    See Also
    --------
    vector_norm, matrix_norm

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([3.0, 4.0], requires_grad=True)
    >>> ng.linalg.norm(x).backward()
    >>> x.grad
    tensor([0.6, 0.8])
    """
    x = _inexact(as_tensor(x, "x"))
    if axis is None and ord is None:
        return _power_norm(x, p=2, axes=tuple(range(x.ndim)), keepdims=keepdims)
    axes = _norm_axes(axis, x)
    if len(axes) == 1:
        return _vector_norm(x, 2 if ord is None else ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, "fro" if ord is None else ord, axes, keepdims)
    raise ValueError(f"norm: Improper number of dimensions to norm: {len(axes)} of shape {x.shape}; wanted are 1 or 2")


def _inexact(x: Tensor) -> Tensor:
    return x if x._layout.kind in "fc" else astype(x, float)


def _norm_axes(axis: Any, x: Tensor) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    try:
        wanted = axis if isinstance(axis, tuple) else (operator.index(axis),)
    except TypeError:
        raise TypeError(f"norm: 'axis' must be None, an integer or a tuple of integers, got {axis!r}") from None
    axes = normalize_axis_tuple(wanted, x.ndim, "axis", allow_duplicate=True)
    if len({*axes}) < len(axes):
        raise ValueError(f"norm: Duplicate axes given. axis is {axis}, the shape {x.shape}")
    return axes


def _vector_norm(x: Tensor, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if isinstance(ord, str):
        raise ValueError(f"norm: Invalid norm order {ord!r} for vectors; give a number, or two axes for matrices")
    if ord == math.inf:
        return _largest(absolute(x), axes, keepdims)
    if ord == -math.inf:
        return reductions.min(absolute(x), axis=axes, keepdims=keepdims)
    if ord == 0:
        nonzero = wrap((x._data != 0).astype(x._data.real.dtype))
        return reductions.sum(nonzero, axis=axes, keepdims=keepdims)
    if ord == 1:
        return reductions.sum(absolute(x), axis=axes, keepdims=keepdims)
    return _power_norm(x, p=ord, axes=axes, keepdims=keepdims)


def _largest(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """The maximum, and 0 of nothing."""
    reduce = reductions.max if all(x.shape[a] for a in axes) else reductions.sum
    return reduce(x, axis=axes, keepdims=keepdims)


def _matrix_norm(x: Tensor, ord: Any, axes: tuple[int, int], keepdims: bool) -> Tensor:
    if ord in ("fro", "f"):
        return _power_norm(x, p=2, axes=axes, keepdims=keepdims)
    if ord in (2, -2, "nuc"):
        out = _spectral_norm(x, ord, axes)
    elif ord in (1, -1, math.inf, -math.inf):
        summed, compared = axes if abs(ord) == 1 else axes[::-1]
        sums = reductions.sum(absolute(x), axis=summed, keepdims=True)
        reduce = _largest if ord > 0 else _smallest
        out = squeeze(reduce(sums, (compared,), True), axes)
    else:
        raise ValueError(
            f"norm: Invalid norm order for matrices. Got {ord!r}, wanted is 1, 2, inf, their negatives, 'fro' or 'nuc'"
        )
    return reshape(out, tuple(1 if i in axes else n for i, n in enumerate(x.shape))) if keepdims else out


def _smallest(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return reductions.min(x, axis=axes, keepdims=keepdims)


def _spectral_norm(x: Tensor, ord: Any, axes: tuple[int, int]) -> Tensor:
    others = [i for i in range(x.ndim) if i not in axes]
    # The absolute value makes the gradient 0 where the norm is.
    s = absolute(svdvals(transpose(x, [*others, *axes])))
    if ord == "nuc":
        return reductions.sum(s, axis=-1)
    return (_largest if ord > 0 else _smallest)(s, (s.ndim - 1,), False)


@stands_for(np.linalg.vector_norm)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """Norm of the vectors along one axis or several, by default of all elements.

    Parameters
    ----------
    x : array_like
    axis : int or tuple of int, optional
    keepdims : bool, optional
        Keep these axes, with length one.
    ord : number, inf or -inf, optional
        As in :func:`norm`.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.vector_norm(ng.tensor([[3.0, 4.0], [6.0, 8.0]]), axis=1)
    tensor([ 5., 10.])
    """
    x = _inexact(as_tensor(x, "x"))
    if not x.ndim:
        return reshape(_vector_norm(reshape(x, (1,)), ord, (0,), False), ())
    return _vector_norm(x, ord, _norm_axes(axis, x), keepdims)


@stands_for(np.linalg.matrix_norm)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Norm of the matrices in the last two axes, with `ord` as in :func:`norm`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.matrix_norm(ng.tensor([[3.0, 0.0], [0.0, 4.0]]), ord="nuc")
    tensor(7.)
    """
    return norm(x, ord, (-2, -1), keepdims)


@stands_for(np.linalg.cond)
def cond(x: Any, p: Any = None) -> Tensor:
    """Condition number of a matrix, or of each in a stack.

    Parameters
    ----------
    x : array_like
        (..., m, n).
    p : {None, 1, -1, 2, -2, inf, -inf, "fro", "nuc"}, optional
        The norm. None and 2 give the ratio of the largest to the smallest singular value; all but 2 and -2 want
        square matrices.

    Returns
    -------
    Tensor
        ``inf`` for singular matrices.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.cond(ng.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor(2.)
    """
    x = _inexact(as_tensor(x, "x"))
    if not x.size and x.ndim == 2:
        raise LinAlgError(f"cond is not defined on empty arrays, got shape {x.shape}")
    if p is None or p in (2, -2):
        s = svdvals(x)
        largest, smallest = getitem(s, (..., 0)), getitem(s, (..., -1))
        ratio = divide(smallest, largest) if p == -2 else divide(largest, smallest)
        return where(np.isnan(ratio._data) & ~np.isnan(x._data).any((-2, -1)), math.inf, ratio)
    singular = np.linalg.det(x._data.astype(np.float32) if is_half(x.dtype) else x._data) == 0
    plain = where(singular[..., None, None], np.eye(x.shape[-1], dtype=x.dtype), x)
    return where(singular, math.inf, matrix_norm(x, ord=p) * matrix_norm(inv(plain), ord=p))


matrix_rank = register(Flat(np.linalg.matrix_rank, wide=True))


# ----- Chains of products -----


@stands_for(np.linalg.matrix_power)
def matrix_power(a: Any, n: int) -> Tensor:
    """A square matrix, or each in a stack, to an integer power.

    Parameters
    ----------
    a : array_like
        (..., m, m).
    n : int
        0 gives the identity, a negative number a power of the inverse.

    Returns
    -------
    Tensor

    Raises
    ------
    LinAlgError
        If a matrix is not square, or singular and `n` negative.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.matrix_power(ng.tensor([[1.0, 1.0], [0.0, 1.0]]), 5)
    tensor([[1., 5.],
            [0., 1.]])
    """
    x = as_tensor(a, "a")
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise LinAlgError(f"matrix_power: Last 2 dimensions of the array must be square, got shape {x.shape}")
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(f"matrix_power: exponent must be an integer, got {n!r}") from None
    if n == 0:
        return wrap(np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape).copy())
    return _positive_power(inv(x) if n < 0 else x, abs(n))


def _positive_power(x: Tensor, n: int) -> Tensor:
    """By squaring; the bits of `n` say which squares are factors."""
    out = None
    while n:
        if n & 1:
            out = x if out is None else matmul(out, x)
        n >>= 1
        if n:
            x = matmul(x, x)
    return out


@stands_for(np.linalg.multi_dot)
def multi_dot(arrays: Sequence[Any]) -> Tensor:
    """Product of several matrices, in the order of evaluation that costs the fewest multiplications.

    Parameters
    ----------
    arrays : sequence of array_like
        Matrices; the first and the last may be vectors.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If there are fewer than two, or neighbours do not fit.
    LinAlgError
        If one is no matrix.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.multi_dot([ng.ones((2, 3)), ng.ones((3, 4)), ng.ones(4)])
    tensor([12., 12.])
    """
    factors = [as_tensor(a, f"arrays[{i}]") for i, a in enumerate(arrays)]
    if len(factors) < 2:
        raise ValueError(f"multi_dot: Expecting at least two arrays, got {len(factors)}")
    ends = factors[0].ndim, factors[-1].ndim
    if ends[0] == 1:
        factors[0] = row(factors[0])
    if ends[1] == 1:
        factors[-1] = column(factors[-1])
    for f in factors:
        if f.ndim != 2:
            raise LinAlgError(f"multi_dot: {f.ndim}-dimensional array given, shape {f.shape}; wanted are matrices")
    for f, h in itertools.pairwise(factors):
        if f.shape[1] != h.shape[0]:
            raise ValueError(f"multi_dot: shapes {f.shape} and {h.shape} not aligned: {f.shape[1]} != {h.shape[0]}")
    out = _chain(factors, _cuts([factors[0].shape[0], *(f.shape[1] for f in factors)]), 0, len(factors))
    return reshape(out, tuple(n for n, ndim in zip(out.shape, ends, strict=True) if ndim == 2))


def _cuts(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where to cut the chain of factors i to j (without j) in two: the matrix chain order by dynamic programming."""
    n = len(sizes) - 1
    cost = {(i, i + 1): 0 for i in range(n)}
    cuts = {}
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length
            price = lambda k, i=i, j=j: cost[i, k] + cost[k, j] + sizes[i] * sizes[k] * sizes[j]
            cuts[i, j] = min(range(i + 1, j), key=price)
            cost[i, j] = price(cuts[i, j])
    return cuts


def _chain(factors: Sequence[Tensor], cuts: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if j == i + 1:
        return factors[i]
    k = cuts[i, j]
    return matmul(_chain(factors, cuts, i, k), _chain(factors, cuts, k, j))


# ----- Systems of tensors -----


@stands_for(np.linalg.tensorsolve)
def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Tensor:
    """Solve ``tensordot(a, x, x.ndim) == b``.

    Parameters
    ----------
    a : array_like
        Of shape ``b.shape + q``, with as many elements in q as in `b`.
    b : array_like
    axes : sequence of int, optional
        Axes of `a` to move to the end first.

    Returns
    -------
    Tensor
        Of shape q.

    Raises
    ------
    LinAlgError
        If `a` is singular, or does not have the square of the elements of `b`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> a = ng.reshape(ng.eye(6), (2, 3, 6))
    >>> ng.linalg.tensorsolve(a, ng.ones((2, 3))).shape
    (6,)
    """
    x, y = as_tensor(a, "a"), as_tensor(b, "b")
    if axes is not None:
        moved = normalize_axis_tuple(axes, x.ndim, "axes")
        x = transpose(x, [i for i in range(x.ndim) if i not in moved] + list(moved))
    shape = x.shape[y.ndim :]
    size = math.prod(shape)
    if x.size != size**2:
        raise LinAlgError(
            "tensorsolve: Input arrays must satisfy the requirement prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim]), "
            f"got shapes {x.shape} and {y.shape}"
        )
    return reshape(solve(reshape(x, (size, size)), reshape(y, (y.size,))), shape)


@stands_for(np.linalg.tensorinv)
def tensorinv(a: Any, ind: int = 2) -> Tensor:
    """Inverse of a tensor for :func:`tensordot`.

    Parameters
    ----------
    a : array_like
        With as many elements in the first `ind` axes as in the others.
    ind : int, optional

    Returns
    -------
    Tensor
        Of shape ``a.shape[ind:] + a.shape[:ind]``.

    Raises
    ------
    LinAlgError
        If `a` is singular, or not square in this sense.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.tensorinv(ng.reshape(ng.eye(6), (6, 2, 3)), ind=1).shape
    (2, 3, 6)
    """
    x = as_tensor(a, "a")
    if ind <= 0:
        raise ValueError(f"tensorinv: Invalid ind argument. Wanted is a positive number of axes, got {ind}")
    flat = reshape(x, (math.prod(x.shape[:ind]), math.prod(x.shape[ind:])))
    return reshape(inv(flat), x.shape[ind:] + x.shape[:ind])


# ----- Names that mean something else outside of linalg -----


@stands_for(np.linalg.cross)
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Cross product of vectors of length three along an axis.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.cross(ng.tensor([1.0, 0.0, 0.0]), [0.0, 1.0, 0.0])
    tensor([0., 0., 1.])
    """
    x, y = as_tensor(x1, "x1"), as_tensor(x2, "x2")
    if x.shape[axis] != 3 or y.shape[axis] != 3:
        raise ValueError(
            "cross: Both input arrays must be (arrays of) 3-dimensional vectors, but they are "
            f"{x.shape[axis]} and {y.shape[axis]} dimensional instead."
        )
    return products.cross(x, y, axis=axis)


@stands_for(np.linalg.outer)
def outer(x1: Any, x2: Any, /) -> Tensor:
    """Product of each element of one vector with each of another.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.outer(ng.tensor([1.0, 2.0]), [3.0, 4.0])
    tensor([[3., 4.],
            [6., 8.]])
    """
    x, y = as_tensor(x1, "x1"), as_tensor(x2, "x2")
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"outer: Input arrays must be one-dimensional, but they have shapes {x.shape} and {y.shape}")
    return products.outer(x, y)


@stands_for(np.linalg.trace)
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Sums along a diagonal of the matrices in the last two axes.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.trace(ng.ones((5, 2, 2)))
    tensor([2., 2., 2., 2., 2.])
    """
    return products.trace(x, offset, -2, -1, dtype)


@stands_for(np.linalg.diagonal)
def diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    """Diagonals of the matrices in the last two axes.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linalg.diagonal(ng.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 4.])
    """
    return diagonals.diagonal(x, offset, -2, -1)


stands_for(np.linalg.matmul)(matmul)
stands_for(np.linalg.tensordot)(tensordot)
stands_for(np.linalg.vecdot)(vecdot)

ONLY_HERE: dict[str, Callable[..., Any]] = {
    "LinAlgError": LinAlgError,
    "cross": cross,
    "diagonal": diagonal,
    "outer": outer,
    "trace": trace,
}
"""What has no place at the top, or means something else there, so `__all__` leaves it out."""

__all__ = [
    "cholesky",
    "cond",
    "det",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "vecdot",
    "vector_norm",
]
