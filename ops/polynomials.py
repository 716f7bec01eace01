"""Polynomials by their coefficients, the highest power first, as NumPy's older functions have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops.arithmetic import sqrt
from numbagrad.ops.conversion import astype, conj
from numbagrad.ops.folding import sum_axes
from numbagrad.ops.gathering import index_put
from numbagrad.ops.joining import concatenate, stack
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for
from numbagrad.ops.signals import convolve


def _coefficients(p: Any, name: str) -> Tensor:
    x = as_tensor(p, name)
    if x.ndim > 1:
        raise ValueError(f"{name}: coefficients must have one axis, got shape {x.shape}")
    return x.reshape(1) if x.ndim == 0 else x


@stands_for(np.vander)
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of each element in a row.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.vander([2.0, 3.0], 3)
    tensor([[4., 2., 1.],
            [9., 3., 1.]])
    """
    x = as_tensor(x, "x")
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    count = x.size if N is None else N
    dtype = np.promote_types(x.dtype, int)
    x = astype(x, dtype)
    if count <= 0:
        return wrap(np.empty((x.size, 0), dtype))
    columns = [wrap(np.ones(x.shape, dtype))]
    for _ in range(count - 1):
        columns.append(x if len(columns) == 1 else columns[-1] * x)
    return stack(columns if increasing else columns[::-1], axis=1)


@stands_for(np.polyval)
def polyval(p: Any, x: Any) -> Tensor:
    """Value of a polynomial, by Horner's rule. Gradients flow to the coefficients and to `x`.

    Parameters
    ----------
    p : array_like
        Coefficients, the highest power first.
    x : array_like
        Where to evaluate.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.polyval([3.0, 0.0, 1.0], 5.0)
    tensor(76.)
    """
    x, coefficients = as_tensor(x, "x"), as_tensor(p, "p")
    y = wrap(np.zeros(x.shape, x.dtype))
    for i in range(coefficients.shape[0]):
        y = y * x + coefficients[i]
    return y


def _aligned(a1: Any, a2: Any) -> tuple[Tensor, Tensor]:
    a1, a2 = _coefficients(a1, "a1"), _coefficients(a2, "a2")
    n = max(a1.size, a2.size)
    return _led_by_zeros(a1, n), _led_by_zeros(a2, n)


def _led_by_zeros(a: Tensor, n: int) -> Tensor:
    return concatenate([np.zeros(n - a.size, a.dtype), a]) if a.size < n else a


@stands_for(np.polyadd)
def polyadd(a1: Any, a2: Any) -> Tensor:
    """Sum of two polynomials.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.polyadd([1.0, 2.0], [9.0, 5.0, 4.0])
    tensor([9., 6., 6.])
    """
    a1, a2 = _aligned(a1, a2)
    return a1 + a2


@stands_for(np.polysub)
def polysub(a1: Any, a2: Any) -> Tensor:
    """Difference of two polynomials.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.polysub([2.0, 10.0, -2.0], [3.0, 10.0, -4.0])
    tensor([-1.,  0.,  2.])
    """
    a1, a2 = _aligned(a1, a2)
    return a1 - a2


@stands_for(np.polymul)
def polymul(a1: Any, a2: Any) -> Tensor:
    """Product of two polynomials.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.polymul([1.0, 2.0], [1.0, -2.0])
    tensor([ 1.,  0., -4.])
    """
    return convolve(_without_leading_zeros(_coefficients(a1, "a1")), _without_leading_zeros(_coefficients(a2, "a2")))


def _without_leading_zeros(a: Tensor) -> Tensor:
    used = a._data.nonzero()[0]
    return a[used[0] :] if used.size else wrap(np.zeros(1, a.dtype))


@stands_for(np.polydiv)
def polydiv(u: Any, v: Any) -> tuple[Tensor, Tensor]:
    """Quotient and remainder of two polynomials.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.polydiv([3.0, 5.0, 2.0], [2.0, 1.0])
    (tensor([1.5 , 1.75]), tensor([0.25]))
    """
    u, v = _coefficients(u, "u") + 0.0, _coefficients(v, "v") + 0.0
    n, scale = v.size - 1, 1.0 / v[0]
    rest, quotient = u, []
    for k in range(u.size - n):
        quotient.append(scale * rest[k])
        here = slice(k, k + n + 1)
        rest = index_put(rest, rest[here] - quotient[-1] * v, index=here)
    while rest.size > 1 and np.allclose(rest._data[0], 0, rtol=1e-14):
        rest = rest[1:]
    return (stack(quotient) if quotient else wrap(np.zeros(1, rest.dtype))), rest


@stands_for(np.polyder)
def polyder(p: Any, m: int = 1) -> Tensor:
    """Derivative of a polynomial.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.polyder([1.0, 1.0, 1.0, 1.0])
    tensor([3., 2., 1.])
    """
    if m < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    p = _coefficients(p, "p")
    for _ in range(m):
        p = p[:-1] * np.arange(p.size - 1, 0, -1)
    return p


@stands_for(np.polyint)
def polyint(p: Any, m: int = 1, k: Any = None) -> Tensor:
    """Antiderivative of a polynomial.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.polyint([3.0, 2.0], k=7.0)
    tensor([1.5, 2. , 7. ])
    """
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    constants = as_tensor(0.0 if k is None else k).reshape(-1)
    if constants.size == 1 and m > 1:
        constants = constants * np.ones(m)
    if constants.size < m:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    p = _coefficients(p, "p")
    for i in range(m):
        p = concatenate([p / np.arange(p.size, 0, -1), constants[i : i + 1]])
    return p


@stands_for(np.poly)
def poly(seq_of_zeros: Any) -> Tensor:
    """The polynomial with the given roots, or the characteristic polynomial of a matrix.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.poly([1.0, 2.0])
    tensor([ 1., -3.,  2.])
    """
    zeros = as_tensor(seq_of_zeros, "seq_of_zeros")
    if zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1] and zeros.size:
        from numbagrad.ops.decompositions import eigvals

        return _of_zeros(eigvals(zeros))
    if zeros.ndim > 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    return _of_zeros(zeros)


def _of_zeros(zeros: Tensor) -> Tensor:
    if zeros.ndim == 0 or zeros.size == 0:
        return wrap(np.asarray(1.0))
    made = wrap(np.ones(1, zeros.dtype))
    for i in range(zeros.size):
        made = convolve(made, stack([np.ones((), zeros.dtype), -zeros[i]]))
    if made._layout.kind == "c" and _in_pairs(zeros._data):
        return made.real
    return made


def _in_pairs(zeros: np.ndarray) -> bool:
    """Whether the roots are those of real coefficients."""
    return bool(np.all(np.sort(zeros) == np.sort(zeros.conjugate())))


@primitive(name="roots")
def _roots(p):
    return np.roots(p).astype(np.result_type(p.dtype, np.complex64), copy=False)


@_roots.vjp("p")
def _(g, p, out):
    return _pull_roots(g, p, out)


def _pull_roots(g: Tensor, p: Tensor, r: Tensor) -> Tensor:
    """By the implicit function: a root moves by -r**k / p'(r) for the coefficient of the power k."""
    slope = polyval(polyder(p), r)
    moves = -vander(r, p.size) / slope.reshape(-1, 1)
    return sum_axes(g.reshape(-1, 1) * conj(moves), axes=(0,), keepdims=False)


@stands_for(np.roots)
def roots(p: Any) -> Tensor:
    """Roots of a polynomial, complex. The gradient at a root that occurs twice is infinite.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.sort(ng.roots([1.0, -3.0, 2.0]).real)
    tensor([1., 2.])
    """
    p = as_tensor(p, "p")
    p = p.reshape(1) if p.ndim == 0 else p
    if p.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    p = p if p._layout.kind in "fc" else astype(p, np.float64)
    used = p._data.nonzero()[0]
    if used.size == 0:
        return wrap(np.array([], p.dtype))
    last = p.size - 1 - used[-1]
    core = p[used[0] : used[-1] + 1]
    found = _roots(core) if core.size > 1 else wrap(np.zeros(0, np.complex128))
    return concatenate([found, np.zeros(last, found.dtype)]) if last else found


@stands_for(np.polyfit)
def polyfit(
    x: Any, y: Any, deg: int, rcond: float | None = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """Least squares polynomial through points. Gradients flow to `x`, `y` and `w`.

    Parameters
    ----------
    x : array_like
    y : array_like
        One value per place, or a column of them.
    deg : int
    rcond : float, optional
        Singular values below this, relative to the largest, count as zero.
    full : bool, optional
        Also give residuals, rank, singular values and `rcond`.
    w : array_like, optional
        Weights of the values.
    cov : bool or "unscaled", optional
        Also give the covariance of the coefficients.

    Returns
    -------
    Tensor or tuple

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.round(ng.polyfit([0.0, 1.0, 2.0], [1.0, 3.0, 5.0], 1), 6)
    tensor([2., 1.])
    """
    from numbagrad.ops.solving import lstsq

    x, y = as_tensor(x, "x") + 0.0, as_tensor(y, "y") + 0.0
    _check_fit(x, y, deg)
    rcond = x.size * float(np.finfo(x.dtype).eps) if rcond is None else rcond
    left, right = vander(x, int(deg) + 1), y
    if w is not None:
        left, right = _weighted(as_tensor(w, "w") + 0.0, left, right)
    scale = sqrt(sum_axes(left * left, axes=(0,), keepdims=False))
    solution, residuals, rank, singular = lstsq(left / scale, right, rcond)
    fitted = (solution.mT / scale).mT if solution.ndim > 1 else solution / scale
    if full:
        return fitted, residuals, rank, singular, rcond
    return (fitted, _covariance(left / scale, scale, residuals, x.size, cov)) if cov else fitted


def _check_fit(x: Tensor, y: Tensor, deg: int) -> None:
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if x.size == 0:
        raise TypeError("expected non-empty vector for x")
    if y.ndim not in (1, 2):
        raise TypeError("expected 1D or 2D array for y")
    if x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length")


def _weighted(w: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    if w.ndim != 1:
        raise TypeError("expected a 1-d array for weights")
    if w.shape[0] != right.shape[0]:
        raise TypeError("expected w and y to have the same length")
    column = w.reshape(-1, 1)
    return left * column, right * (column if right.ndim == 2 else w)


def _covariance(left: Tensor, scale: Tensor, residuals: Tensor, count: int, cov: Any) -> Tensor:
    from numbagrad.ops.solving import inv

    order = left.shape[1]
    base = inv(left.mT @ left) / (scale.reshape(-1, 1) * scale)
    if cov == "unscaled":
        return base
    if count <= order:
        raise ValueError("the number of data points must exceed order to scale the covariance matrix")
    factor = residuals / (count - order)
    return base * factor if factor.size == 1 else base.reshape(*base.shape, 1) * factor


__all__ = [
    "poly",
    "polyadd",
    "polyder",
    "polydiv",
    "polyfit",
    "polyint",
    "polymul",
    "polysub",
    "polyval",
    "roots",
    "vander",
]
