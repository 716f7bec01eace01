"""`vmap`: a function of one entry made a function of a batch of them, and what builds on it: Jacobians in one sweep.

Names are JAX's. The function runs once, on `Batched` tensors; where it asks for values (``if x > 0``, ``x.numpy()``, an
index computed from x, a write into x), it runs once per entry instead, with a `BatchingWarning`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbagrad.engine.mode import enable_grad
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops.batching import Batched, Level, NeedsValues, batched, entries_of, open_levels, opened
from numbagrad.ops.joining import stack
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.shape import moveaxis, reshape
from numbagrad.ops.transforms import _jacobian_of, _name, _Trace, push_forward
from numbagrad.ops.trees import flatten, is_container

Axes = Any
RANDOMNESS = ("error", "same", "different")


class BatchingWarning(UserWarning):
    """Something under `vmap` is done entry by entry, which takes as long as a loop does."""


def vmap(
    function: Callable[..., Any],
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    *,
    axis_size: int | None = None,
    randomness: str = "error",
) -> Callable[..., Any]:
    """Map a function over an axis of its arguments, by batching its ops and not by a loop.

    Parameters
    ----------
    function : callable
        Takes and returns tensors, or containers of them.
    in_axes : int, None or sequence, optional
        Which axis of each positional argument counts the entries; None for arguments that all entries share. One
        number for all, or one for each argument, or for the leaves of a container the like container. Keyword
        arguments are shared.
    out_axes : int, None or container, optional
        Where the axis of entries is in the results. None for results that do not depend on the entry.
    axis_size : int, optional
        Number of entries; needed where no argument is mapped.
    randomness : {"error", "same", "different"}, optional
        What a function that draws from NumPy's global random numbers does: raise, draw once for all entries, or draw
        for each (by a loop). Generators of one's own are drawn from once.

    Returns
    -------
    callable
        Takes the arguments with their axes of entries. Plain arrays in give plain arrays out.

    Raises
    ------
    ValueError
        If axes are out of range, entries are not equally many, or containers do not fit.
    RuntimeError
        If random numbers are drawn and that was not allowed.

    Warns
    -----
    BatchingWarning
        If an op, or the function as a whole, goes through the entries one by one: it has no batching rule, or asks for
        values of single entries. The function then starts again for each entry.

    Notes
    -----
    Nests, and composes with `grad`, `jvp`, `jacobian` and the other transforms in both orders: ``vmap(grad(loss),
    (None, 0, 0))(params, xs, ys)`` gives the gradient of each example. ``backward()`` within the function goes entry
    by entry.

    See Also
    --------
    jacfwd, jacrev, vectorize

    Examples
    --------
    >>> import numbagrad as ng, numpy as np
    >>> ng.vmap(lambda v, w: v @ w, (0, None))(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0]))
    array([3., 7.])
    """
    if randomness not in RANDOMNESS:
        raise ValueError(f"randomness is one of {', '.join(RANDOMNESS)}, not {randomness!r}")

    @functools.wraps(function, updated=())
    def mapped(*args: Any, **kwargs: Any) -> Any:
        run = _Run(function, args, kwargs, in_axes, axis_size)
        return run.given_back(*_outcome(run, randomness), out_axes)

    return mapped


class _Run:
    """One call of a mapped function: its arguments, flat, and their axes."""

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], in_axes: Axes, size: int | None
    ) -> None:
        self.function, self.kwargs = function, kwargs
        self.leaves, self.rebuild = flatten(tuple(args))
        self.axes = _spread_axes(in_axes, tuple(args), _name(function))
        self.mapped = [as_tensor(x) if a is not None else None for x, a in zip(self.leaves, self.axes, strict=True)]
        self.axes = [a if x is None else _axis_of(x, a, self) for x, a in zip(self.mapped, self.axes, strict=True)]
        self.size = self._size(size)

    def _size(self, wanted: int | None) -> int:
        sizes = {x.shape[a] for x, a in zip(self.mapped, self.axes, strict=True) if x is not None}
        if wanted is not None:
            sizes.add(wanted)
        if len(sizes) != 1:
            what = f"counts of entries differ: {sorted(sizes)}" if sizes else "no argument has an axis of entries"
            raise ValueError(
                f"vmap of {_name(self.function)}: {what}; the arguments have shapes "
                f"{[np.shape(x) for x in self.leaves]} and in_axes {self.axes}"
            )
        return int(sizes.pop())

    def at_once(self, level: Level) -> Any:
        """The result of the function for all entries."""
        given = [
            leaf if x is None else batched(level, moveaxis(x, a, 0) if a else x)
            for leaf, x, a in zip(self.leaves, self.mapped, self.axes, strict=True)
        ]
        return self.function(*self.rebuild(given), **self.kwargs)

    def at(self, i: int) -> Any:
        """The result for one entry."""
        given = [
            leaf if x is None else x[(slice(None),) * a + (i,)]  # type: ignore[index]
            for leaf, x, a in zip(self.leaves, self.mapped, self.axes, strict=True)
        ]
        return self.function(*self.rebuild(given), **self.kwargs)

    def given_back(self, leaves: Sequence[Any], rebuild: Callable[..., Any], out_axes: Axes) -> Any:
        """Results with their axes of entries in place; `leaves` are pairs of (tensor, whether it has entries)."""
        axes = _spread_axes(out_axes, rebuild(list(range(len(leaves)))), _name(self.function), "out_axes")
        tensors = bool(open_levels()) or any(isinstance(x, Tensor) for x in self.leaves)
        return rebuild([self._placed(*leaf, a, tensors) for leaf, a in zip(leaves, axes, strict=True)])

    def _placed(self, x: Tensor, own: bool, axis: int | None, tensors: bool) -> Any:
        if axis is None:
            if own:
                raise ValueError(
                    f"vmap of {_name(self.function)}: a result depends on the entry, so its out_axes cannot be None"
                )
        elif not -x.ndim <= axis < x.ndim:
            raise ValueError(
                f"vmap of {_name(self.function)}: out_axes {axis} is out of range for a result of shape {x.shape}"
            )
        else:
            x = moveaxis(x, 0, axis) if axis else x
        if tensors or x.requires_grad:
            return x
        return np.array(x._data)[()] if x.ndim == 0 else np.array(x._data)


def _axis_of(x: Tensor, axis: int, run: _Run) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"vmap of {_name(run.function)}: in_axes {axis} is out of range for shape {x.shape}")
    return axis % x.ndim


def _spread_axes(axes: Axes, tree: Any, name: str, what: str = "in_axes") -> list[int | None]:
    """An axis for every leaf of `tree` from axes given for it, or for containers in it as a whole."""
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return [axes] * len(flatten(tree)[0])
    if isinstance(axes, (list, tuple)) and isinstance(tree, (list, tuple)) and len(axes) == len(tree):
        return [a for pair in zip(axes, tree, strict=True) for a in _spread_axes(*pair, name, what)]
    if isinstance(axes, dict) and isinstance(tree, dict) and axes.keys() == tree.keys():
        return [a for key in tree for a in _spread_axes(axes[key], tree[key], name, what)]
    raise ValueError(
        f"vmap of {name}: {what} {axes!r} does not fit what it is for: a number or None, or a container of them like "
        f"the values, {'with one for each of ' + str(len(tree)) if is_container(tree) else 'which are no container'}"
    )


def _outcome(run: _Run, randomness: str) -> tuple[list[tuple[Tensor, bool]], Callable[..., Any]]:
    """Results, flat, with whether they have entries, and how to build the containers again."""
    if randomness == "different":
        return _in_a_loop(run)
    before = _random_state()
    with opened(run.size, functools.partial(_warn_slow, "vmap")) as level:
        try:
            leaves, rebuild = flatten(run.at_once(level))
            found = [_with_entries(leaf, level) for leaf in leaves]
        except NeedsValues as need:
            if need.level is not level:
                raise
            reason = need.what
        else:
            reason = ""
    if randomness == "error" and _random_state() != before:
        raise RuntimeError(
            f"vmap: {_name(run.function)} drew random numbers; say randomness='same' for one draw for all entries, or "
            "'different' for one draw for each"
        )
    if not reason:
        return found, rebuild
    _warn_slow("vmap", f"{_name(run.function)}, where {reason} was asked for,")
    return _in_a_loop(run, None if randomness == "error" else before)


def _random_state() -> Any:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - the global state is what is asked about
    return kind, keys.tobytes(), *rest


def _warn_slow(what: str, name: str) -> None:
    warnings.warn(
        f"{what}: {name} goes through the entries one by one, as a loop would",
        BatchingWarning,
        stacklevel=_outside(),
    )


def _outside() -> int:
    """How far up the first caller outside of the package is."""
    import sys

    frame: Any = sys._getframe(2)
    depth = 2
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("numbagrad", "contextlib")):
        frame, depth = frame.f_back, depth + 1
    return depth


def _with_entries(leaf: Any, level: Level) -> tuple[Tensor, bool]:
    tensor = as_tensor(leaf, "a result under vmap")
    own = type(tensor) is Batched and tensor._level is level
    return entries_of(tensor, level), own


def _in_a_loop(run: _Run, state: Any = None) -> tuple[list[tuple[Tensor, bool]], Callable[..., Any]]:
    if run.size == 0:
        raise ValueError(
            f"vmap of {_name(run.function)}: it goes through the entries one by one and there are none, so the "
            "shape of the result is not known"
        )
    rows, rebuild = [], None
    for i in range(run.size):
        if state is not None:
            np.random.set_state((state[0], np.frombuffer(state[1], np.uint32), *state[2:]))  # noqa: NPY002
        leaves, rebuild_row = flatten(run.at(i))
        rebuild = rebuild or rebuild_row
        rows.append([as_tensor(leaf, "a result under vmap") for leaf in leaves])
    if len({len(row) for row in rows}) != 1:
        raise ValueError(f"vmap: {_name(run.function)} returned containers of different sizes for the entries")
    assert rebuild is not None
    return [(stack(list(column)), True) for column in zip(*rows, strict=True)], rebuild


def over_entries(function: Callable[..., Any], tensors: Sequence[Tensor]) -> list[Tensor | None] | None:
    """What `function`, from a list of tensors to a list of them, gives for each entry along their first axis.

    None where it asks for values of single entries.
    """
    with opened(tensors[0].shape[0]) as level:
        try:
            found = function([batched(level, t) for t in tensors])
            return [None if f is None else entries_of(f, level) for f in found]
        except NeedsValues as need:
            if need.level is not level:
                raise
            return None


# ----- Jacobians -----

ITEMS_AT_MOST = 1 << 22
"""Rows of a Jacobian are computed together as long as their gradients have no more items than this."""


def units(like: Tensor) -> np.ndarray:
    """Arrays of the shape of `like` with a single 1, stacked."""
    return np.eye(like.size, dtype=like.dtype).reshape(like.size, *like.shape)


def in_chunks(
    function: Callable[[Tensor], list[Tensor | None] | None], rows: np.ndarray, items: int
) -> list[Tensor | None] | None:
    """`function` of stacked rows, so many at a time that no more than `ITEMS_AT_MOST` items are handled."""
    step = max(1, ITEMS_AT_MOST // max(items, 1))
    parts = []
    for start in range(0, len(rows), step):
        part = function(wrap(rows[start : start + step]))
        if part is None:
            return None
        parts.append(part)
    if len(parts) == 1:
        return parts[0]
    from numbagrad.ops.joining import concatenate

    return [None if c[0] is None else concatenate(list(c)) for c in zip(*parts, strict=True)]


def jacrev(function: Callable[..., Any], argnum: Any = 0) -> Callable[..., Any]:
    """The Jacobian by reverse mode, all rows in one sweep: for functions with fewer outputs than inputs.

    Parameters
    ----------
    function : callable
        Returns an array, or a container of arrays.
    argnum : int or sequence of int, optional

    Returns
    -------
    callable
        Gives what `jacobian` gives.

    Examples
    --------
    >>> import numbagrad as ng, numpy as np
    >>> ng.jacrev(lambda x: x * x)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """

    @functools.wraps(function, updated=())
    def full_jacobian(*args: Any, **kwargs: Any) -> Any:
        trace = _Trace(function, argnum, args, kwargs)
        leaves, rebuild = flatten(trace.result)
        outputs = [as_tensor(leaf) for leaf in leaves]
        nested = trace.is_nested(outputs)
        parts = [_rows(trace, out, nested) for out in outputs]
        return rebuild([trace.like_arguments([trace.given_back(j, nested) for j in part]) for part in parts])

    return full_jacobian


def _rows(trace: _Trace, out: Tensor, record: bool) -> list[Tensor]:
    """The Jacobian of one output by every variable."""
    items = max(out.size, *(v.size for v in trace.variables)) if trace.variables else out.size

    def several(seeds: Tensor) -> list[Tensor | None] | None:
        # Recorded, since gradient rules take shortcuts over arrays where nothing is.
        return over_entries(lambda s: list(trace.gradients([out], s, True)), [seeds])

    found = in_chunks(several, units(out), items) if out.size and out.requires_grad else None
    if found is None:
        return _jacobian_of(trace, out, record)
    return [_shaped(f, out.shape, v) for f, v in zip(found, trace.variables, strict=True)]


def _shaped(rows: Tensor | None, outer: tuple[int, ...], v: Tensor) -> Tensor:
    from numbagrad.ops.conversion import conj

    assert rows is not None
    made = reshape(rows, outer + v.shape)
    return conj(made) if made._layout.kind == "c" else made


def jacfwd(function: Callable[..., Any], argnum: Any = 0) -> Callable[..., Any]:
    """The Jacobian by forward mode, all columns in one sweep: for functions with fewer inputs than outputs.

    Parameters
    ----------
    function : callable
        Returns an array, or a container of arrays.
    argnum : int or sequence of int, optional

    Returns
    -------
    callable
        Gives what `jacobian` gives.

    Examples
    --------
    >>> import numbagrad as ng, numpy as np
    >>> ng.jacfwd(lambda x: ng.stack([x[0] * x[1], x[0], x[1]]))(np.array([2.0, 3.0]))
    array([[3., 2.],
           [1., 0.],
           [0., 1.]])
    """

    @functools.wraps(function, updated=())
    def full_jacobian(*args: Any, **kwargs: Any) -> Any:
        trace = _Trace(function, argnum, args, kwargs)
        leaves, rebuild = flatten(trace.result)
        outputs = [as_tensor(leaf) for leaf in leaves]
        nested = trace.is_nested(outputs)
        columns = [_columns(trace, outputs, i, nested) for i in range(len(trace.variables))]
        parts = [[column[nr] for column in columns] for nr in range(len(outputs))]
        return rebuild([trace.like_arguments([trace.given_back(j, nested) for j in part]) for part in parts])

    return full_jacobian


def _columns(trace: _Trace, outputs: Sequence[Tensor], i: int, record: bool) -> list[Tensor]:
    """The Jacobians of all outputs by one variable."""
    variable = trace.variables[i]
    items = max([variable.size, *(o.size for o in outputs)])

    def pushed(moves: Sequence[Tensor]) -> list[Tensor | None]:
        with enable_grad():
            found = push_forward(trace.behind(outputs), [trace.sources[i]], trace.behind(moves), True)
        return list(trace.dressed(found))

    found = in_chunks(lambda moves: over_entries(pushed, [moves]), units(variable), items) if variable.size else None
    if found is None:
        return _columns_by_loop(pushed, variable, outputs)
    return [_turned(f, variable, o) for f, o in zip(found, outputs, strict=True)]


def _columns_by_loop(pushed: Callable[..., Any], variable: Tensor, outputs: Sequence[Tensor]) -> list[Tensor]:
    rows = [pushed([wrap(unit)]) for unit in units(variable)]
    if not rows:
        return [wrap(np.zeros(o.shape + variable.shape, o.dtype)) for o in outputs]
    return [_turned(stack(list(c)), variable, o) for c, o in zip(zip(*rows, strict=True), outputs, strict=True)]


def _turned(columns: Tensor | None, variable: Tensor, out: Tensor) -> Tensor:
    """Columns, one for each item of the variable, as a Jacobian."""
    assert columns is not None
    return reshape(moveaxis(columns, 0, -1), out.shape + variable.shape)


__all__ = ["BatchingWarning", "jacfwd", "jacrev", "vmap"]
