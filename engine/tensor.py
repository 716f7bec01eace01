"""Tensor: an array, its gradient, and its place in the graph. Mathematics is attached by `numbagrad.ops`.

Memory that several tensors share (views, `detach()`) is described by one `Storage`, made when the first alias is. A
view knows its base and how to get from there to itself, so that it can renew its history after the base was written.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from numbagrad.engine.inference import is_inference_mode_enabled
from numbagrad.engine.layout import Layout, interned, kind_of, layout_of
from numbagrad.engine.node import AccumulateGrad, Edge, Hooks, Node, RemovableHandle, Storage, inference, mark_new

_new = object.__new__


class View:
    """Where a view comes from: its base, the steps that lead from there to it, and the version it has seen."""

    __slots__ = ("base", "forbidden", "steps", "version")

    def __init__(self, base: Tensor, steps: tuple[Callable[[Any], Any], ...], version: int) -> None:
        self.base = base
        self.steps = steps
        self.version = version
        self.forbidden: str | None = None
        """Why neither it nor its base may be written where that would be recorded."""


class LeafHooks:
    """Hooks of a leaf: on its gradient, and after that was accumulated."""

    __slots__ = ("accumulated", "parameter", "private", "tensor")

    def __init__(self) -> None:
        self.parameter = False
        """Whether it is a parameter, which modules know by this mark."""
        self.private = False
        """Whether a finished transform made this leaf for itself: nobody else waits for its gradient."""
        self.tensor: dict[int, Callable[..., Any]] = {}
        self.accumulated: dict[int, Callable[..., Any]] = {}


class Tensor:
    """An array that gradients can be taken through.

    Parameters
    ----------
    data : array_like
        The values. They are copied; `numbagrad.asarray` shares memory.
    requires_grad : bool, optional
        Whether operations on the tensor are recorded, so that `backward` finds its gradient.

    Raises
    ------
    RuntimeError
        If `requires_grad` is asked of a dtype that is neither floating nor complex.

    See Also
    --------
    numbagrad.tensor : the usual way to make one.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.Tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    __slots__ = (
        "__weakref__",
        "_data",
        "_extra",
        "_grad",
        "_layout",
        "_node",
        "_requires_grad",
        "_storage",
        "_view",
    )

    _data: np.ndarray
    _layout: Layout
    _requires_grad: bool
    _grad: Tensor | None
    _node: Node | Edge | None
    _storage: Storage | None
    _view: View | None
    _extra: LeafHooks | None
    _run_backward: ClassVar[Callable[..., None]]
    """`numbagrad.autograd.backward`, set where it is defined."""

    def __init__(self, data: Any, requires_grad: bool = False) -> None:
        if isinstance(data, Tensor):
            data = data._data
        array = np.array(data)
        if array.dtype == object:
            raise TypeError(
                f"a Tensor holds numbers, got {type(data).__name__} with dtype object; "
                "for a list of tensors use numbagrad.stack or numbagrad.array"
            )
        _fill(self, array)
        if requires_grad:
            self.requires_grad = True

    # ------------------------------------------------------------------ the array
    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self._layout.shape

    @property
    def dtype(self) -> np.dtype:
        """NumPy dtype of the elements."""
        return self._layout.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._layout.shape)

    @property
    def size(self) -> int:
        """Number of elements, as in NumPy."""
        return self._layout.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._data.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._data.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        return self._data.strides

    @property
    def device(self) -> str:
        """Where the memory is."""
        return "cpu"

    def numpy(self) -> np.ndarray:
        """The values as an ndarray that shares memory with the tensor.

        Raises
        ------
        RuntimeError
            If the tensor requires grad: the array would leave the graph silently.
        """
        if self._requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        return self._data.view()

    def item(self) -> Any:
        """The value of a one-element tensor as a Python number."""
        if self._layout.size != 1:
            raise RuntimeError(
                f"a Tensor with {self._layout.size} elements (shape {self.shape}) cannot be converted to a scalar; "
                "reduce it first, or use tolist()"
            )
        return self._data.item()

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        return self._data.tolist()

    def __len__(self) -> int:
        if not self._layout.shape:
            raise TypeError("len() of a 0-d tensor")
        return self._layout.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self._layout.shape:
            raise TypeError("iteration over a 0-d tensor")
        return (self[i] for i in range(self._layout.shape[0]))  # type: ignore[index]

    def __bool__(self) -> bool:
        return bool(self._data)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        return self._data.__index__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self._requires_grad:
            raise RuntimeError(
                "a tensor that requires grad cannot become a NumPy array: its gradient would be lost. "
                "Use tensor.detach() first, or numbagrad's function of that name"
            )
        if copy is None:
            return np.asarray(self._data.view(), dtype=dtype)
        return np.array(self._data, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return _describe(self)

    def __format__(self, spec: str) -> str:
        if spec and self._layout.size == 1 and not self._layout.shape:
            return format(self._data.item(), spec)
        return format(repr(self) if not spec else str(self), spec)

    # ------------------------------------------------------------------ the graph
    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded."""
        return self._requires_grad if self._view is None else _edge_of(self) is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        wanted = bool(wanted)
        if self._node is not None and not wanted:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in "
                "a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
            )
        if wanted and self._layout.kind not in "fc":
            raise RuntimeError(
                "only Tensors of floating point and complex dtype can require gradients: this one has dtype "
                f"{self._layout.dtype}; convert it first, as in x.astype(float)"
            )
        if wanted and self.is_inference() and not is_inference_mode_enabled():
            raise RuntimeError(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed. Make a clone() "
                "to get a normal tensor."
            )
        self._requires_grad = wanted or self._node is not None

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set `requires_grad` and return the tensor."""
        self.requires_grad = requires_grad
        return self

    def is_inference(self) -> bool:
        """Whether the tensor was made in inference mode."""
        return self._storage is not None and type(self._storage) is not Storage

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made this tensor."""
        return _current_node(self) is None

    @property
    def grad_fn(self) -> Node | None:
        """The node of the operation that made this tensor, or None for a leaf."""
        node = _current_node(self)
        return node.node if isinstance(node, Edge) else node

    @property
    def output_nr(self) -> int:
        """Which output of `grad_fn` this tensor is."""
        node = _current_node(self)
        return node.nr if isinstance(node, Edge) else 0

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward accumulated, or None."""
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is None:
            self._grad = None
            return
        if not isinstance(value, Tensor):
            raise TypeError(f"assigned grad expected to be a Tensor or None but got {type(value).__name__}")
        if value is self:
            raise RuntimeError("can't assign Variable as its own grad")
        if value.shape != self.shape or value.dtype != self.dtype:
            raise RuntimeError(
                f"assigned grad has shape {value.shape} and dtype {value.dtype}, but the tensor has shape "
                f"{self.shape} and dtype {self.dtype}"
            )
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    @property
    def data(self) -> Tensor:
        """The same memory without history. Writes to it are not seen by the in-place check."""
        return wrap(self._data)

    @data.setter
    def data(self, value: Any) -> None:
        array = value._data if isinstance(value, Tensor) else np.asarray(value)
        if self._requires_grad and kind_of(array.dtype) not in "fc":
            raise RuntimeError(f"data of a tensor that requires grad must be floating or complex, got {array.dtype}")
        self._data = array
        self._layout = layout_of(array)

    def detach(self) -> Tensor:
        """A tensor with the same memory that needs no gradient.

        An in-place write to either is seen by both and by the in-place check.
        """
        out = wrap(self._data)
        out._storage = share(self)
        return out

    def detach_(self) -> Tensor:
        """Cut the tensor from the graph that made it: it becomes a leaf."""
        if self._view is not None:
            raise RuntimeError(
                "Can't detach views in-place. Use detach() instead, which makes a new tensor without history"
            )
        self._node = None
        self._requires_grad = False
        return self

    @property
    def _version(self) -> int:
        return 0 if self._storage is None else self._storage.version

    @property
    def _base(self) -> Tensor | None:
        return None if self._view is None else self._view.base

    def retain_grad(self) -> None:
        """Keep the gradient of this non-leaf tensor in `grad`."""
        if not self.requires_grad:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        node = _current_node(self)
        if node is not None:
            owner, nr = _owner(node)
            owner._hooks().retain[nr] = weakref.ref(self)

    @property
    def retains_grad(self) -> bool:
        """Whether this is a non-leaf tensor that keeps its gradient."""
        node = self.grad_fn
        kept = node.hooks.retain.get(self.output_nr) if node is not None and node.hooks is not None else None
        return kept is not None and kept() is self

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call ``hook(grad)`` when the gradient of this tensor is known; what it returns replaces the gradient.

        Parameters
        ----------
        hook : callable
            Takes the gradient, must not change it, returns a Tensor or None.

        Returns
        -------
        RemovableHandle
            Its ``remove()`` takes the hook away.

        Raises
        ------
        RuntimeError
            If the tensor does not require grad.
        """
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        node = _current_node(self)
        if node is None:
            return RemovableHandle(_leaf_hooks(self).tensor, hook)
        owner, nr = _owner(node)
        return RemovableHandle(owner._hooks().tensor, (nr, hook))

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Call ``hook(tensor)`` after backward has accumulated into the `grad` of this leaf."""
        if not self._requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        if _current_node(self) is not None:
            raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
        return RemovableHandle(_leaf_hooks(self).accumulated, hook)

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradient of this tensor to the `grad` of each leaf that it was computed from.

        Parameters
        ----------
        gradient : array_like, optional
            Gradient with respect to this tensor, of its shape. May be left out for one element.
        retain_graph : bool, optional
            Keep what was saved, so that backward can run again. Default: `create_graph`.
        create_graph : bool, optional
            Record the backward pass, so that it can be differentiated.
        inputs : Tensor or sequence of Tensor, optional
            Accumulate into these only.

        Raises
        ------
        RuntimeError
            If the tensor has several elements and no `gradient` is given, if `gradient` has another shape, if nothing
            requires grad, or if the graph was freed by an earlier call.

        Examples
        --------
        >>> import numbagrad as ng
        >>> x = ng.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * 3).backward([1.0, 10.0])
        >>> x.grad
        tensor([ 3., 30.])
        """
        seed = None if gradient is None else (gradient,)
        self._run_backward(self, seed, retain_graph, create_graph, inputs=inputs)

    # ------------------------------------------------------------------ copying
    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if _current_node(self) is not None:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                "moment. Use tensor.detach() or tensor.clone()"
            )
        if id(self) in memo:
            return memo[id(self)]
        out = _new(type(self))
        _fill(out, self._data.copy())
        memo[id(self)] = out
        out._requires_grad = self._requires_grad
        out._grad = copy.deepcopy(self._grad, memo)
        return mark_parameter(out) if _is_parameter(self) else out

    def __reduce__(self) -> tuple[Any, ...]:
        if _current_node(self) is not None:
            raise RuntimeError("cannot pickle a tensor that is part of a graph; pickle tensor.detach()")
        return _rebuild, (type(self), self._data, self._requires_grad, self._grad, _is_parameter(self))


def _is_parameter(tensor: Tensor) -> bool:
    return tensor._extra is not None and tensor._extra.parameter


def mark_parameter(tensor: Tensor) -> Tensor:
    """Make a tensor known as a parameter."""
    _leaf_hooks(tensor).parameter = True
    return tensor


def _rebuild(
    kind: type[Tensor], array: np.ndarray, requires_grad: bool, grad: Tensor | None, parameter: bool = False
) -> Tensor:
    out = _new(kind)
    _fill(out, array)
    out._requires_grad = requires_grad
    out._grad = grad
    return mark_parameter(out) if parameter else out


def _fill(tensor: Tensor, array: np.ndarray) -> None:
    tensor._data = array
    tensor._layout = layout_of(array)
    tensor._requires_grad = False
    tensor._grad = None
    tensor._node = None
    tensor._storage = None
    tensor._view = None
    tensor._extra = None
    if inference:
        mark_new(tensor)


def wrap(array: np.ndarray) -> Tensor:
    """A Tensor around `array` itself: no copy, no history."""
    tensor = _new(Tensor)
    tensor._data = array
    # Most arrays are dense, aligned and of a known layout: that is `layout_of` without the calls.
    known = interned.get((array.shape, array.dtype)) if array.flags.carray else None
    tensor._layout = layout_of(array) if known is None else known
    tensor._requires_grad = False
    tensor._grad = tensor._node = tensor._storage = tensor._view = tensor._extra = None
    if inference:
        mark_new(tensor)
    return tensor


def share(tensor: Tensor) -> Storage:
    """The storage of a tensor, made now if nobody shared its memory before."""
    storage = tensor._storage
    if storage is None:
        storage = tensor._storage = Storage(tensor._data)
        note_storage(tensor, storage)
    return storage


def note_storage(tensor: Tensor, storage: Storage) -> None:
    """Tell the node that made `tensor`, which may have saved it as its output, who counts the writes."""
    node = tensor._node
    if type(node) is Node:
        node.storage = storage
    elif type(node) is Edge:
        kept = node.node.storage
        node.node.storage = {**(kept or {}), node.nr: storage}  # type: ignore[assignment, dict-item]


def become_view(out: Tensor, of: Tensor, step: Callable[[Any], Any]) -> None:
    """Note that `out` is a view of the memory of `of`, got by `step`, which works on tensors."""
    storage = share(of)
    out._storage = storage
    if type(storage) is not Storage:
        # An inference tensor: its writes are not counted, so there is no history to keep up with.
        return
    note_storage(out, storage)
    before = of._view
    if before is None:
        out._view = View(of, (step,), storage.version)
    else:
        out._view = View(before.base, (*before.steps, step), storage.version)
    storage.add_view(out)


def snapshot(tensor: Tensor) -> Tensor:
    """The tensor as it is now in the graph, sharing its memory: what an in-place op takes as its input."""
    out = wrap(tensor._data)
    out._node = _current_node(tensor)
    out._requires_grad = tensor._requires_grad
    out._storage = share(tensor)
    return out


def check_writable(tensor: Tensor) -> None:
    """Refuse in-place writes that autograd cannot follow."""
    if not tensor.requires_grad:
        return
    if tensor._view is not None and tensor._view.forbidden is not None:
        raise RuntimeError(tensor._view.forbidden)
    if tensor._view is not None and tensor._view.base.is_leaf:
        raise RuntimeError(
            "a view of a leaf Variable that requires grad is being used in an in-place operation. "
            "Write under numbagrad.no_grad(), or into a copy, as in x.clone()"
        )
    if tensor.is_leaf:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation. "
            "Write under numbagrad.no_grad(), or into a copy, as in x.clone()"
        )


def adopt(tensor: Tensor, result: Tensor) -> None:
    """After a write to a tensor that is no view: its history is now that of `result`."""
    kept = tensor.retains_grad
    if kept:
        tensor.grad_fn.hooks.retain.pop(tensor.output_nr)  # type: ignore[union-attr]
    tensor._node = result._node
    tensor._requires_grad = result._requires_grad
    if kept and result._requires_grad:
        tensor.retain_grad()
    storage = share(tensor)
    for ref in storage.views:
        view = ref()
        # Their own history is renewed when it is asked for.
        if view is not None:
            view._requires_grad = result._requires_grad


def edge_of(tensor: Tensor) -> Any:
    """Where the gradient of `tensor` goes: a Node, an Edge, the leaf itself, or None."""
    if tensor._view is not None:
        return _edge_of(tensor)
    return (tensor._node or tensor) if tensor._requires_grad else None


def _owner(node: Node | Edge) -> tuple[Node, int]:
    """The node and the number of its output."""
    return (node.node, node.nr) if isinstance(node, Edge) else (node, 0)


def _edge_of(view: Tensor) -> Any:
    _renew(view)
    return (view._node or view) if view._requires_grad else None


def _current_node(tensor: Tensor) -> Node | Edge | None:
    if tensor._view is not None:
        _renew(tensor)
    return tensor._node


def _renew(tensor: Tensor) -> None:
    """Make the history of a view again after its base was written."""
    view = tensor._view
    assert view is not None
    storage = tensor._storage
    if storage is None or storage.version == view.version or not view.base._requires_grad:
        return
    if view.forbidden is not None:
        raise RuntimeError(view.forbidden)
    from numbagrad.engine.mode import enable_grad

    with enable_grad():
        again = view.base
        for step in view.steps:
            again = step(again)
    tensor._node = again._node
    tensor._requires_grad = again._requires_grad
    view.version = storage.version


def make_private(leaf: Tensor) -> None:
    """Note that nobody but the transform that made it waits for the gradient of `leaf`."""
    _leaf_hooks(leaf).private = True


def _leaf_hooks(tensor: Tensor) -> LeafHooks:
    if tensor._extra is None:
        tensor._extra = LeafHooks()
    return tensor._extra


def _describe(tensor: Tensor) -> str:
    body = np.array2string(tensor._data, separator=", ", prefix="tensor(")
    notes = []
    if tensor.dtype not in (np.dtype(np.float64), np.dtype(np.int64), np.dtype(bool), np.dtype(np.complex128)):
        notes.append(f"dtype={tensor.dtype}")
    node = tensor.grad_fn
    if node is not None:
        notes.append(f"grad_fn={node!r}")
    elif tensor._requires_grad:
        notes.append("requires_grad=True")
    return f"tensor({', '.join([body, *notes])})"


__all__ = ["AccumulateGrad", "Hooks", "Tensor", "View", "become_view", "edge_of", "share", "wrap"]
