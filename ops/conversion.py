"""Conversion: dtype, real and imaginary parts, conjugates, copies."""

from __future__ import annotations

from typing import Any

import numpy as np

from numbagrad.engine.layout import is_half, kind_of
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.jit.convert import convert
from numbagrad.ops.operands import as_dtype, as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for


@primitive(name="astype")
def _astype(x, *, dtype):
    return convert(x, dtype) if is_half(dtype) or is_half(x.dtype) else x.astype(dtype)


@_astype.vjp("x")
def _(g, x_dtype):
    if g.dtype.kind == "c" and x_dtype.kind != "c":
        g = real(g)
    return astype(g, x_dtype)


@_astype.jvp
def _(node, tangents):
    return _astype(tangents[0], dtype=node.statics.settings["dtype"])


def astype(x: Any, dtype: Any, copy: bool = False) -> Tensor:
    """Convert to another dtype.

    Parameters
    ----------
    x : array_like
    dtype : dtype
    copy : bool, optional
        Copy even if the dtype is the same already.

    Returns
    -------
    Tensor
        Of the shape of `x`. Integers and booleans carry no gradient.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.tensor([1.5, 2.5]).astype(int)
    tensor([1, 2])
    """
    x, dtype = as_tensor(x), as_dtype(dtype)
    if kind_of(dtype) not in "biufc":
        raise TypeError(f"a Tensor holds numbers, so astype cannot make {dtype} of {x.dtype}")
    if x.dtype == dtype:
        return clone(x) if copy else x
    return _astype(x, dtype=dtype)


@primitive(linear=True, name="clone")
def _clone(x):
    return x.copy()


@_clone.vjp("x")
def _(g):
    return g


@stands_for(np.astype)
def _numpy_astype(x: Any, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Tensor:
    """`astype` with NumPy's signature."""
    if device not in (None, "cpu"):
        raise ValueError(f"astype: device {device!r} is not here, only 'cpu'")
    return astype(x, dtype, copy)


@stands_for(np.copy)
def clone(a: Any, order: str = "K", subok: bool = False) -> Tensor:
    """A copy with memory of its own; the gradient flows back to `x`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0])
    >>> y = ng.clone(x)
    >>> y[0] = 5.0
    >>> x
    tensor([1., 2.])
    """
    return _clone(as_tensor(a, "a"))


@primitive(view=True, name="real")
def _real(x):
    return np.real(x)


@_real.vjp("x")
def _(g, x_dtype):
    return astype(g, x_dtype)


@_real.jvp
def _(node, tangents):
    return real(tangents[0])


@stands_for(np.real)
def real(val: Any) -> Tensor:
    """Real part.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.real(ng.tensor([1 + 2j]))
    tensor([1.])
    """
    x = as_tensor(val, "val")
    return _real(x) if x.dtype.kind == "c" else x


@primitive(name="imag")
def _imag(x):
    return np.imag(x).copy()


@_imag.vjp("x")
def _(g, x_dtype):
    return astype(g, x_dtype) * 1j


@_imag.jvp
def _(node, tangents):
    return imag(tangents[0])


@stands_for(np.imag)
def imag(val: Any) -> Tensor:
    """Imaginary part; zeros for real numbers.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.imag(ng.tensor([1 + 2j]))
    tensor([2.])
    """
    x = as_tensor(val, "val")
    if x.dtype.kind == "c":
        return _imag(x)
    from numbagrad.ops.arithmetic import where

    if x._layout.kind != "f":
        return wrap(np.zeros(x.shape, x.dtype))
    # Within the graph, but +0 also for negative numbers and nan.
    return where(np.False_, x, np.zeros((), x.dtype))


@primitive(name="conj")
def _conj(x):
    return np.conj(x)


@_conj.vjp("x")
def _(g):
    return conj(g)


@_conj.jvp
def _(node, tangents):
    return conj(tangents[0])


@stands_for(np.conj, np.conjugate)
def conj(x: Any) -> Tensor:
    """Complex conjugate.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.conj(ng.tensor([1 + 2j]))
    tensor([1.-2.j])
    """
    x = as_tensor(x)
    return _conj(x) if x.dtype.kind == "c" else x


__all__ = [
    "astype",
    "clone",
    "conj",
    "imag",
    "real",
]
