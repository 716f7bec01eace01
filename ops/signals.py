"""Sequences: convolution and correlation, differences and slopes, unwrapped phases, running totals with an initial."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.conversion import astype, conj
from numbagrad.ops.cumulative import cumprod, cumsum
from numbagrad.ops.folding import masked, refuse_out
from numbagrad.ops.gathering import getitem, index_put
from numbagrad.ops.joining import concatenate, stack
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for
from numbagrad.ops.shape import moveaxis, ravel, reshape

# ----- Convolution -----


@primitive(name="convolve", wide="all")
def _convolve(a, v):
    return np.convolve(a, v)


@_convolve.vjp("a")
def _(g, v, a_shape, v_shape):
    return _matching(g, v, v_shape[0], a_shape[0])


@_convolve.vjp("v")
def _(g, a, a_shape, v_shape):
    return _matching(g, a, a_shape[0], v_shape[0])


def _matching(g: Tensor, other: Tensor, skipped: int, count: int) -> Tensor:
    """The part of g's correlation with `other` where they overlap whole."""
    return _convolve(g, conj(other)[::-1])[skipped - 1 : skipped - 1 + count]


@stands_for(np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """Convolution of two sequences.

    Parameters
    ----------
    a, v : array_like
        Of one axis.
    mode : {"full", "same", "valid"}, optional
        All of it; the middle, as long as the longer one; only where they overlap whole.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If one is empty or has more than one axis, or `mode` is another.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.convolve([1.0, 2.0, 3.0], [0.0, 1.0, 0.5])
    tensor([0. , 1. , 2.5, 4. , 1.5])
    """
    a, v = _sequence(a, "a", "convolve"), _sequence(v, "v", "convolve")
    n, m = max(a.size, v.size), min(a.size, v.size)
    return _of_mode(_convolve(a, v), n, m, mode, (m - 1) // 2)


@stands_for(np.correlate)
def correlate(a: Any, v: Any, mode: str = "valid") -> Tensor:
    """Correlation of two sequences: ``sum(a[n + k] * conj(v[n]))``.

    Parameters
    ----------
    a, v : array_like
        Of one axis.
    mode : {"valid", "same", "full"}, optional
        As for `convolve`.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.correlate([1.0, 2.0, 3.0], [0.0, 1.0, 0.5])
    tensor([3.5])
    """
    a, v = _sequence(a, "a", "correlate"), _sequence(v, "v", "correlate")
    n, m = max(a.size, v.size), min(a.size, v.size)
    # NumPy cuts the middle of the swapped one, and turns it round.
    before = (m - 1) // 2 if a.size >= v.size else m - 1 - (m - 1) // 2
    return _of_mode(_convolve(a, conj(v)[::-1]), n, m, mode, before)


def _sequence(value: Any, name: str, op: str) -> Tensor:
    x = as_tensor(value, name)
    if x.ndim > 1:
        raise ValueError(f"{op}: object too deep for desired array: {name} must have one axis, got shape {x.shape}")
    if x.size == 0:
        raise ValueError(f"{op}: {name} cannot be empty")
    return reshape(x, (1,)) if x.ndim == 0 else x


def _of_mode(full: Tensor, n: int, m: int, mode: str, before: int) -> Tensor:
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    if mode == "full":
        return full
    return full[m - 1 : n] if mode == "valid" else full[before : before + n]


# ----- Differences -----


@stands_for(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Tensor:
    """Differences of neighbours among the flattened elements.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.ediff1d([1.0, 2.0, 4.0], to_begin=9.0)
    tensor([9., 1., 2.])
    """
    x = ravel(as_tensor(ary, "ary"))
    ends = [
        None if e is None else ravel(as_tensor(e, name)) for e, name in ((to_begin, "to_begin"), (to_end, "to_end"))
    ]
    for end, name in zip(ends, ("to_begin", "to_end"), strict=True):
        if end is not None and not np.can_cast(end.dtype, x.dtype, casting="same_kind"):
            raise TypeError(f"dtype of `{name}` must be compatible with input `ary` under the `same_kind` rule.")
    parts = [ends[0], x[1:] - x[:-1], ends[1]]
    parts = [astype(p, x.dtype) for p in parts if p is not None]
    return concatenate(parts) if len(parts) > 1 else parts[0]


@stands_for(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Slopes by central differences, along one axis or each.

    Parameters
    ----------
    f : array_like
    *varargs : number or array_like, optional
        Spacing for all axes; or, for each axis, the spacing or the places. Gradients flow to it.
    axis : int or tuple of int, optional
    edge_order : {1, 2}, optional
        Order of the differences at the ends.

    Returns
    -------
    Tensor or tuple of Tensor
        One for each axis.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.gradient([1.0, 2.0, 4.0, 7.0])
    tensor([1. , 1.5, 2.5, 3. ])
    """
    x = as_tensor(f, "f")
    x = x if x._layout.kind in "fc" else astype(x, np.float64)
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
    if edge_order not in (1, 2):
        raise ValueError("'edge_order' greater than 2 not supported")
    if any(x.shape[one] < edge_order + 1 for one in axes):
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, "
            f"at least (edge_order + 1) elements are required; got shape {x.shape}"
        )
    spacings = _spacings(varargs, x.shape, axes)
    made = tuple(
        moveaxis(_slope(moveaxis(x, one, -1), h, edge_order), -1, one) for one, h in zip(axes, spacings, strict=True)
    )
    return made[0] if len(made) == 1 else made


def _spacings(given: tuple[Any, ...], shape: tuple[int, ...], axes: tuple[int, ...]) -> list[Tensor]:
    """For each axis the spacing, of one element or of one per step."""
    if not given:
        given = (1.0,)
    if len(given) == 1 and as_tensor(given[0], "varargs").ndim == 0:
        given *= len(axes)
    if len(given) != len(axes):
        raise TypeError(f"gradient: invalid number of arguments, got {len(given)} spacings for {len(axes)} axes")
    return [_spacing(as_tensor(one, "varargs"), shape[axis]) for one, axis in zip(given, axes, strict=True)]


def _spacing(h: Tensor, n: int) -> Tensor:
    if h.ndim == 0:
        return h
    if h.ndim != 1:
        raise ValueError("distances must be either scalars or 1d")
    if h.size != n:
        raise ValueError("when 1d, distances must match the length of the corresponding dimension")
    h = h if h._layout.kind in "fc" else astype(h, np.float64)
    steps = h[1:] - h[:-1]
    return steps[0] if (steps._data == steps._data[0]).all() and not steps.requires_grad else steps


def _slope(x: Tensor, h: Tensor, edge_order: int) -> Tensor:
    """Slopes along the last axis."""
    n = x.shape[-1]
    low, mid, high = x[..., :-2], x[..., 1:-1], x[..., 2:]
    if h.ndim == 0:
        inner = (high - low) / (2.0 * h)
        first, last = _ends(x, h, h, h, h, edge_order, n)
        return concatenate([first, inner, last], axis=-1)
    left, right = h[:-1], h[1:]
    inner = (
        low * (-right / (left * (left + right)))
        + mid * ((right - left) / (left * right))
        + high * (left / (right * (left + right)))
    )
    first, last = _ends(x, h[0], h[min(1, n - 2)], h[-1], h[max(n - 3, 0)], edge_order, n)
    return concatenate([first, inner, last], axis=-1)


def _ends(x: Tensor, h0: Tensor, h1: Tensor, hn: Tensor, hm: Tensor, edge_order: int, n: int) -> tuple[Tensor, Tensor]:
    """Slopes at both ends, from the first two steps h0, h1 and the last two hn, hm."""
    if edge_order == 1:
        return (x[..., 1:2] - x[..., :1]) / h0, (x[..., n - 1 :] - x[..., n - 2 : n - 1]) / hn
    at = [x[..., i : i + 1] for i in (0, 1, 2, n - 3, n - 2, n - 1)]
    first = -(2.0 * h0 + h1) / (h0 * (h0 + h1)) * at[0] + (h0 + h1) / (h0 * h1) * at[1] - h0 / (h1 * (h0 + h1)) * at[2]
    last = hn / (hm * (hm + hn)) * at[3] - (hn + hm) / (hm * hn) * at[4] + (2.0 * hn + hm) / (hn * (hm + hn)) * at[5]
    return first, last


# ----- Phases -----


@primitive(name="unwrap")
def _unwrap(x, *, discont, axis, period):
    return np.unwrap(x, discont, axis, period=period)


@_unwrap.vjp("x")
def _(g):
    return g


@_unwrap.jvp
def _(node, tangents):
    return tangents[0] * 1


@stands_for(np.unwrap)
def unwrap(p: Any, discont: float | None = None, axis: int = -1, *, period: float = 2 * np.pi) -> Tensor:
    """Add multiples of the period so that neighbours differ by at most half of it. The gradient passes as it is.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.unwrap([0.0, 3.0, 7.0], period=4)
    tensor([ 0., -1., -1.])
    """
    x = as_tensor(p, "p")
    if isinstance(period, Tensor):
        period = period.item() if not period.requires_grad else _refuse_period()
    return _unwrap(x, discont=discont, axis=normalize_axis_index(axis, x.ndim), period=period)


def _refuse_period() -> Any:
    raise TypeError("unwrap: period requires grad, which would be lost here; pass period.detach()")


# ----- Running totals -----


@stands_for(np.cumulative_sum)
def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, out: None = None, include_initial: bool = False
) -> Tensor:
    """Running sum, with the array API's name and an initial 0 if wanted.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.cumulative_sum([1.0, 2.0, 3.0], include_initial=True)
    tensor([0., 1., 3., 6.])
    """
    return _running(cumsum, x, axis, dtype, out, include_initial, 0)


@stands_for(np.cumulative_prod)
def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, out: None = None, include_initial: bool = False
) -> Tensor:
    """Running product, with the array API's name and an initial 1 if wanted.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.cumulative_prod([1.0, 2.0, 3.0], include_initial=True)
    tensor([1., 1., 2., 6.])
    """
    return _running(cumprod, x, axis, dtype, out, include_initial, 1)


def _running(function: Any, x: Any, axis: int | None, dtype: Any, out: Any, initial: bool, first: int) -> Tensor:
    x = as_tensor(x, "x")
    if axis is None:
        if x.ndim != 1:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        axis = 0
    axis = normalize_axis_index(axis, x.ndim)
    made = function(x, axis=axis, dtype=dtype, out=out)
    if not initial:
        return made
    shape = tuple(1 if i == axis else n for i, n in enumerate(x.shape))
    return concatenate([np.full(shape, first, made.dtype), made], axis=axis)


@stands_for(np.nancumsum)
def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Tensor:
    """Running sum that takes nan as 0.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nancumsum([1.0, ng.nan, 2.0])
    tensor([1., 1., 3.])
    """
    refuse_out(out, "nancumsum")
    return cumsum(_without_nan(a, 0, "nancumsum"), axis, dtype)


@stands_for(np.nancumprod)
def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Tensor:
    """Running product that takes nan as 1.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nancumprod([2.0, ng.nan, 3.0])
    tensor([2., 2., 6.])
    """
    refuse_out(out, "nancumprod")
    return cumprod(_without_nan(a, 1, "nancumprod"), axis, dtype)


def _without_nan(a: Any, fill: float, op: str) -> Tensor:
    x = as_tensor(a, "a")
    return masked(x, ~np.isnan(x._data), fill, op) if x._layout.kind in "fc" else x


# ----- Functions of pieces -----


@stands_for(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Tensor:
    """Apply to each element the function of the last condition that holds there.

    Parameters
    ----------
    x : array_like
    condlist : list of array_like of bool
    funclist : list of callable or number
        One per condition, and perhaps one more for where none holds. Functions get the elements chosen.
    *args, **kw
        Passed to the functions.

    Returns
    -------
    Tensor
        Of the shape and dtype of `x`; 0 where nothing holds.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([-2.0, 3.0])
    >>> ng.piecewise(x, [x < 0, x >= 0], [lambda v: -v, 10.0])
    tensor([ 2., 10.])
    """
    x = as_tensor(x, "x")
    masks = _masks(condlist, x)
    functions = list(funclist)
    if len(functions) == len(masks) + 1:
        masks.append(~np.any(masks, axis=0))
    elif len(functions) != len(masks):
        raise ValueError(
            f"with {len(masks)} condition(s), either {len(masks)} or {len(masks) + 1} functions are expected"
        )
    out = as_tensor(np.zeros(x.shape, x.dtype))
    for mask, function in zip(masks, functions, strict=True):
        if callable(function):
            values = function(getitem(x, mask), *args, **kw) if mask.any() else None
        else:
            values = function
        if values is not None and mask.any():
            out = index_put(out, astype(as_tensor(values), x.dtype), index=mask)
    return out


def _masks(condlist: Any, x: Tensor) -> list[np.ndarray]:
    if isinstance(condlist, (Tensor, np.ndarray)) or (x.ndim and np.ndim(condlist[0] if condlist else 0) == 0):
        single = as_tensor(condlist)._data
        condlist = [single] if single.ndim <= x.ndim and single.shape == x.shape else list(single)
    return [np.broadcast_to(as_tensor(c)._data.astype(bool), x.shape) for c in condlist]


# ----- Along an axis -----


@stands_for(np.apply_along_axis)
def apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Apply a function to each line along an axis.

    Parameters
    ----------
    func1d : callable
        From a tensor of one axis to anything of one shape.
    axis : int
    arr : array_like
    *args, **kwargs
        Passed to the function.

    Returns
    -------
    Tensor
        The results' axes stand where `axis` was.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.apply_along_axis(lambda line: line.sum(), 1, ng.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([3., 7.])
    """
    x = as_tensor(arr, "arr")
    axis = normalize_axis_index(axis, x.ndim)
    moved = moveaxis(x, axis, -1)
    rest = moved.shape[:-1]
    if 0 in rest:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    results = [as_tensor(func1d(moved[at], *args, **kwargs)) for at in np.ndindex(rest)]
    made = reshape(stack(results), rest + results[0].shape)
    ends = tuple(range(len(rest), made.ndim))
    return moveaxis(made, ends, tuple(range(axis, axis + len(ends)))) if ends else made


@stands_for(np.apply_over_axes)
def apply_over_axes(func: Any, a: Any, axes: Any) -> Tensor:
    """Apply ``func(x, axis)`` for one axis after the other, keeping the number of axes.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.apply_over_axes(ng.sum, ng.ones((2, 3)), [0, 1])
    tensor([[6.]])
    """
    x = as_tensor(a, "a")
    for axis in np.atleast_1d(np.asarray(axes)).tolist():
        axis = normalize_axis_index(axis, x.ndim)
        made = as_tensor(func(x, axis))
        if made.ndim != x.ndim:
            made = reshape(made, (*made.shape[:axis], 1, *made.shape[axis:]))
        if made.ndim != x.ndim:
            raise ValueError("function is not returning an array of the correct shape")
        x = made
    return x


def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Tensor:
    """Windows that slide over some axes, in new axes at the end. Unlike NumPy's, the result has memory of its own.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.sliding_window_view([1.0, 2.0, 3.0], 2)
    tensor([[1., 2.],
            [2., 3.]])
    """
    x = as_tensor(x, "x")
    if writeable:
        raise TypeError("sliding_window_view: writeable=True is not supported, because the result is a copy")
    sizes = (window_shape,) if np.ndim(window_shape) == 0 else tuple(window_shape)
    if axis is None:
        axes = tuple(range(x.ndim))
        if len(sizes) != x.ndim:
            raise ValueError(
                "Since axis is None, must provide window_shape for all dimensions of `x`; "
                f"got {len(sizes)} window_shape elements and `x.ndim` is {x.ndim}."
            )
    else:
        axes = normalize_axis_tuple(axis, x.ndim, allow_duplicate=True)
        if len(sizes) != len(axes):
            raise ValueError(f"Must provide matching length window_shape and axis; got {sizes} and {axes}")
    for one, size in zip(axes, sizes, strict=True):
        x = _windows(x, one, int(size))
    return x


def _windows(x: Tensor, axis: int, size: int) -> Tensor:
    count = x.shape[axis] - size + 1
    if size < 0:
        raise ValueError("`window_shape` cannot contain negative values")
    if count <= 0:
        raise ValueError("window shape cannot be larger than input array shape")
    places = np.arange(count)[:, None] + np.arange(size)
    return moveaxis(getitem(x, (slice(None),) * axis + (places,)), axis + 1, -1)


stands_for(np.lib.stride_tricks.sliding_window_view)(sliding_window_view)


@stands_for(np.trim_zeros)
def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Tensor:
    """Without the zeros at the ends.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.trim_zeros([0.0, 1.0, 0.0, 2.0, 0.0])
    tensor([1., 0., 2.])
    """
    x, trim = as_tensor(filt, "filt"), trim.lower()
    if trim not in ("fb", "bf", "f", "b"):
        raise ValueError(f"unexpected character(s) in `trim`: {trim!r}")
    axes = range(x.ndim) if axis is None else normalize_axis_tuple(axis, x.ndim)
    index = [slice(None)] * x.ndim
    for one in axes:
        used = np.any(x._data != 0, axis=tuple(i for i in range(x.ndim) if i != one)).nonzero()[0]
        first, end = (used[0], used[-1] + 1) if used.size else (0, 0)
        index[one] = slice(first if "f" in trim else None, end if "b" in trim else None)
        if not used.size and trim == "f":
            index[one] = slice(x.shape[one], None)
    return getitem(x, tuple(index))


__all__ = [
    "apply_along_axis",
    "apply_over_axes",
    "convolve",
    "correlate",
    "cumulative_prod",
    "cumulative_sum",
    "ediff1d",
    "gradient",
    "nancumprod",
    "nancumsum",
    "piecewise",
    "sliding_window_view",
    "trim_zeros",
    "unwrap",
]
