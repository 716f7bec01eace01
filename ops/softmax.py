"""Softmax and its kin: exponentials of a row, compared with their sum. None of them overflows.

Kernels read a row once from memory: its largest item, the sum and the result are found while it is near the processor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numbagrad.engine.tensor import Tensor
from numbagrad.jit.expr import s, symbol
from numbagrad.jit.reduce import Fold, RowProgram, Stage
from numbagrad.ops.elementwise import elementwise
from numbagrad.ops.exponential import exp
from numbagrad.ops.folding import Axes, axes_of, inexact, run, sum_axes, with_axes
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive

_x, _y, _g, _top, _total = map(symbol, ("x", "y", "g", "top", "total"))
_LARGEST = Stage((Fold("top", "max", _x),))


def _along(a: Any, axis: Any, real: str = "") -> tuple[Tensor, Axes]:
    """The operand as floats, and the axes of a row. The op named by `real` has no complex form."""
    x = inexact(as_tensor(a, "a"))
    if real and x._layout.kind == "c":
        raise TypeError(f"{real} is defined for real numbers only, got dtype {x.dtype}; take real or abs first")
    return x, axes_of(axis, x.ndim)


# ----- Log of the sum of exponentials -----

# An infinite top is not taken away: inf - inf is nan.
_SHIFT = ("shift", s.where(s.less(s.absolute(_top), math.inf), _top, 0))
LOGSUMEXP = RowProgram(
    "logsumexp",
    ("x",),
    (
        Stage(_LARGEST.folds, after=(_SHIFT,)),
        Stage(
            (Fold("total", "sum", s.exp(_x - symbol("shift"))),), after=(("result", s.log(_total) + symbol("shift")),)
        ),
    ),
    ("result",),
)


@primitive(name="logsumexp")
def _logsumexp(x, *, axes, keepdims):
    return run(LOGSUMEXP, [x], axes, keepdims)[0]


# In a sum of zeros every share is zero.
_SHARE = s.exp(_x - s.where(s.equal(_total, -math.inf), 0, _total))
LOGSUMEXP_PULL = RowProgram("logsumexp_backward", ("x",), (Stage(stores=(("out", _g * _SHARE),)),), rows=("g", "total"))


@_logsumexp.vjp("x")
def _(g, x, out, axes, keepdims):
    return _pull_logsumexp(g, x, out, axes=axes, keepdims=keepdims)


@primitive(name="logsumexp_backward")
def _pull_logsumexp(h, x, total, *, axes, keepdims):
    """h * exp(x - total): the share of each item in the sum whose log is total."""
    return run(LOGSUMEXP_PULL, [x], axes, per_row=[h, total])[0]


@_pull_logsumexp.vjp("h")
def _(g, x, total, axes, keepdims):
    return sum_axes(_share_of(g, x, with_axes(total, x.shape, axes)), axes=axes, keepdims=keepdims)


@_pull_logsumexp.vjp("x")
def _(g, h, x, total, axes):
    return _share_of(g, x, with_axes(total, x.shape, axes)) * with_axes(h, x.shape, axes)


@_pull_logsumexp.vjp("total")
def _(g, h, x, total, axes, keepdims):
    return -sum_axes(_share_of(g, x, with_axes(total, x.shape, axes)), axes=axes, keepdims=keepdims) * h


@elementwise(sample=((-2, 2), (-2, 0), (0, 2)))
def _share_of(g, x, total):
    """g * exp(x - total), 0 where the total is."""
    e = s.exp(x - s.where(s.equal(total, -math.inf), 0, total))
    y = g * e
    return y, (e, y, -y)


def logsumexp(a: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Logarithm of the sum of exponentials, which never overflows.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to sum over; None for all.
    keepdims : bool, optional
        Keep the axes, with length 1.

    Returns
    -------
    Tensor
        -inf, with gradient 0, where all items are -inf.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.logsumexp([1000.0, 1000.0]) - 1000
    tensor(0.69314718)
    """
    x, axes = _along(a, axis)
    return _logsumexp(x, axes=axes, keepdims=bool(keepdims))


# ----- Softmax -----

_EXP = s.exp(_x - _top)
SOFTMAX = RowProgram(
    "softmax",
    ("x",),
    (
        _LARGEST,
        Stage((Fold("total", "sum", _EXP),), (("y", _EXP),), (("scale", 1 / _total),)),
        Stage(stores=(("y", _y * symbol("scale")),)),
    ),
)
SOFTMAX_PULL = RowProgram(
    "softmax_backward",
    ("g", "y"),
    (Stage((Fold("dot", "sum", _g * _y),)), Stage(stores=(("out", _y * (_g - symbol("dot"))),))),
)


@primitive(name="softmax")
def _softmax(x, *, axes):
    return run(SOFTMAX, [x], axes)[0]


@_softmax.vjp("x")
def _(g, out, axes):
    return _softmax_pull(g, out, axes=axes)


@primitive(name="softmax_backward")
def _softmax_pull(h, y, *, axes):
    """y (h - sum(h y)): the gradient of softmax, whose matrix is symmetric."""
    return run(SOFTMAX_PULL, [h, y], axes)[0]


@_softmax_pull.vjp("h")
def _(g, y, axes):
    return _softmax_pull(g, y, axes=axes)


@_softmax_pull.vjp("y")
def _(g, h, y, axes):
    by_dot = sum_axes(g * y, axes=axes, keepdims=True)
    return g * (h - sum_axes(h * y, axes=axes, keepdims=True)) - h * by_dot


def softmax(a: Any, axis: Any = -1) -> Tensor:
    """Exponentials as shares of their sum: positive numbers that add up to 1.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to sum over; None for all. Default: the last.

    Returns
    -------
    Tensor
        nan where no item is finite.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.softmax([0.0, 0.0, -1000.0])
    tensor([0.5, 0.5, 0. ])
    """
    x, axes = _along(a, axis, "softmax")
    return _softmax(x, axes=axes)


# ----- Log-softmax -----

# Two differences of items near the top are more exact than one with the log of the sum.
LOG_SOFTMAX = RowProgram(
    "log_softmax",
    ("x",),
    (
        _LARGEST,
        Stage((Fold("total", "sum", _EXP),), after=(("log", s.log(_total)),)),
        Stage(stores=(("y", _x - _top - symbol("log")),)),
    ),
)
LOG_SOFTMAX_PULL = RowProgram(
    "log_softmax_backward",
    ("g", "y"),
    (Stage((Fold("total", "sum", _g),)), Stage(stores=(("out", _g - s.exp(_y) * _total),))),
)


@primitive(name="log_softmax")
def _log_softmax(x, *, axes):
    return run(LOG_SOFTMAX, [x], axes)[0]


@_log_softmax.vjp("x")
def _(g, out, axes):
    return _log_softmax_pull(g, out, axes=axes)


@primitive(name="log_softmax_backward")
def _log_softmax_pull(h, y, *, axes):
    """h - exp(y) sum(h)."""
    return run(LOG_SOFTMAX_PULL, [h, y], axes)[0]


@_log_softmax_pull.vjp("h")
def _(g, y, axes):
    return g - sum_axes(g * exp.fast(y), axes=axes, keepdims=True)


@_log_softmax_pull.vjp("y")
def _(g, h, y, axes):
    return -g * exp.fast(y) * sum_axes(h, axes=axes, keepdims=True)


def log_softmax(a: Any, axis: Any = -1) -> Tensor:
    """Logarithm of softmax, exact for logits however far apart.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to sum over; None for all. Default: the last.

    Returns
    -------
    Tensor
        nan where no item is finite.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.log_softmax([1000.0, 0.0])
    tensor([    0., -1000.])
    """
    x, axes = _along(a, axis, "log_softmax")
    return _log_softmax(x, axes=axes)


METHODS: dict[str, Callable[..., Any]] = {"logsumexp": logsumexp, "softmax": softmax, "log_softmax": log_softmax}
__all__ = ["log_softmax", "logsumexp", "softmax"]
