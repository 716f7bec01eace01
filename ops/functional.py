"""PyTorch's `torch.autograd.functional`: products with the Jacobian and the Hessian of a function, and these whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbagrad.engine import autograd
from numbagrad.engine.mode import enable_grad, mode
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops import conversion, joining, shape
from numbagrad.ops.transforms import push_forward
from numbagrad.ops.vectorizing import over_entries, units

STRATEGIES = ("forward-mode", "reverse-mode")


class _Call:
    """The function called once, on tensors of its own: inputs, outputs, and what is in tuples."""

    def __init__(self, func: Callable[..., Any], inputs: Any, what: str, create_graph: bool, strict: bool) -> None:
        self.create_graph, self.strict = create_graph, strict
        given, self.inputs_in_tuple = _tensors(inputs, "inputs", what)
        with enable_grad():
            self.inputs = [_variable(x, create_graph) for x in given]
            result = func(*self.inputs)
        outs, self.outputs_in_tuple = _tensors(result, "outputs of the user-provided function", what)
        self.outputs = list(outs)
        if strict:
            self._check_outputs()

    def _check_outputs(self) -> None:
        for i, out in enumerate(self.outputs):
            if not out.requires_grad:
                raise RuntimeError(
                    f"Output {i} of the user-provided function does not require gradients. The outputs must be "
                    "computed in a differentiable manner from the input when running in strict mode."
                )

    def gradients(self, seeds: Sequence[Any], record: bool, of: Sequence[Tensor] | None = None) -> list[Tensor | None]:
        """Gradients at the inputs, None where nothing arrives."""
        outs = self.outputs if of is None else of
        active = [(o, s) for o, s in zip(outs, seeds, strict=True) if o.requires_grad]
        if not active:
            return [None] * len(self.inputs)
        with enable_grad():
            return list(
                autograd.grad(
                    [o for o, _ in active],
                    self.inputs,
                    [s for _, s in active],
                    retain_graph=True,
                    create_graph=record,
                    allow_unused=True,
                )
            )

    def filled(self, grads: Sequence[Tensor | None], independent: str) -> list[Tensor]:
        """The gradients with zeros for None; in strict mode the error `independent`, with the input's number."""
        for i, g in enumerate(grads):
            if g is None and self.strict:
                raise RuntimeError(independent.format(i))
        return [wrap(np.zeros(x.shape, x.dtype)) if g is None else g for g, x in zip(grads, self.inputs, strict=True)]

    def like_inputs(self, values: Sequence[Tensor]) -> Any:
        """One value per input, in a tuple if they were."""
        return self._packed(values, self.inputs_in_tuple)

    def like_outputs(self, values: Sequence[Any]) -> Any:
        """One value per output, in a tuple if they were."""
        return self._packed(values, self.outputs_in_tuple)

    def _packed(self, values: Sequence[Any], in_tuple: bool) -> Any:
        kept = tuple(v if self.create_graph or not isinstance(v, Tensor) else v.detach() for v in values)
        return kept if in_tuple else kept[0]

    def scalar(self, what: str) -> Tensor:
        """The only output, of one element."""
        if self.outputs_in_tuple or len(self.outputs) != 1:
            raise RuntimeError(f"The function given to {what} should return a single Tensor")
        if self.outputs[0].size != 1:
            raise RuntimeError(f"The Tensor returned by the function given to {what} should contain a single element")
        return shape.reshape(self.outputs[0], ())


def _tensors(given: Any, kind: str, what: str) -> tuple[tuple[Tensor, ...], bool]:
    in_tuple = isinstance(given, tuple)
    items = given if in_tuple else (given,)
    for i, item in enumerate(items):
        if not isinstance(item, Tensor):
            which = f"the value at index {i} of the given {kind}" if in_tuple else f"the given {kind}"
            raise TypeError(
                f"The {kind} given to {what} must be either a Tensor or a tuple of Tensors but {which} has type "
                f"{type(item)}."
            )
    return items, in_tuple


def _variable(x: Tensor, linked: bool) -> Tensor:
    """A tensor of these values to differentiate with respect to."""
    if linked and x.requires_grad:
        return shape.reshape(x, x.shape) if x.size else conversion.clone(x)
    return wrap(x._data).requires_grad_()


def _vectors(v: Any, like: Sequence[Tensor], in_tuple: bool, what: str, missing: str) -> list[Tensor]:
    """The tensors of `v`, checked against those that they go with."""
    if v is None:
        if len(like) != 1 or like[0].size != 1:
            raise RuntimeError(f"The vector v can only be None if {missing} a single Tensor with a single element.")
        return [wrap(np.ones(like[0].shape, like[0].dtype))]
    vectors, v_in_tuple = _tensors(v, "v", what)
    if len(vectors) != len(like) or (in_tuple and not v_in_tuple and len(like) > 1):
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(vectors)}.")
    for i, (one, other) in enumerate(zip(vectors, like, strict=True)):
        if one.shape != other.shape:
            entry = f"Entry {i} in " if in_tuple else ""
            raise RuntimeError(f"{entry}v has invalid size: should be {other.shape} but got {one.shape}.")
    return list(vectors)


_NO_INPUT = "the input to the user-provided function is"
_NO_OUTPUT = "the user-provided function returns"
_INDEPENDENT = (
    "The output of the user-provided function is independent of input {}. This is not allowed in strict mode."
)
_TWICE = (
    "While computing the hessian, found that the jacobian of the user-provided function with respect to input {} is "
    "independent of the input. This is not allowed in strict mode. You should ensure that your function is twice "
    "differentiable and that the jacobian depends on the inputs (this would be violated by a linear function for "
    "example)."
)


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """Product of a vector with the Jacobian of a function: what backward computes.

    Parameters
    ----------
    func : callable
        Takes tensors, returns a Tensor or a tuple of them.
    inputs : Tensor or tuple of Tensor
    v : Tensor or tuple of Tensor, optional
        One for each output; may be left out for a single number.
    create_graph : bool, optional
        Give results that can be differentiated.
    strict : bool, optional
        Raise where an output does not depend on an input, instead of giving zeros.

    Returns
    -------
    outputs, products
        The products have the form of `inputs`.

    Raises
    ------
    RuntimeError
        If `v` does not fit the outputs, or in strict mode.
    TypeError
        If inputs or outputs are no tensors.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0])
    >>> ng.autograd.functional.vjp(lambda x: x * x, x, ng.tensor([1.0, 10.0]))
    (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    call = _Call(func, inputs, "vjp", create_graph, strict)
    vectors = _vectors(v, call.outputs, call.outputs_in_tuple, "vjp", _NO_OUTPUT)
    grads = call.filled(call.gradients(vectors, create_graph), _INDEPENDENT)
    return call.like_outputs(call.outputs), call.like_inputs(grads)


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """Product of the Jacobian of a function with a vector, by forward mode.

    Parameters
    ----------
    func, inputs, create_graph, strict
        As for `vjp`.
    v : Tensor or tuple of Tensor, optional
        One for each input; may be left out for a single number.

    Returns
    -------
    outputs, products
        The products have the form of the outputs.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0])
    >>> ng.autograd.functional.jvp(lambda x: x * x, x, ng.tensor([1.0, 10.0]))
    (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    call = _Call(func, inputs, "jvp", create_graph, strict)
    vectors = _vectors(v, call.inputs, call.inputs_in_tuple, "jvp", _NO_INPUT)
    pushed = _push(call.outputs, call.inputs, vectors, create_graph)
    return call.like_outputs(call.outputs), call.like_outputs(pushed)


def _push(outs: Sequence[Tensor], inputs: Sequence[Tensor], vectors: Sequence[Tensor], record: bool) -> list[Tensor]:
    before, mode.enabled = mode.enabled, record
    try:
        return push_forward(outs, inputs, vectors, record)
    finally:
        mode.enabled = before


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of a function.

    Parameters
    ----------
    func, inputs, create_graph, strict
        As for `vjp`.
    vectorize : bool, optional
        One sweep for all elements together, by batching the ops of the derivative: the same result, sooner, with the
        memory of all rows at once.
    strategy : {"reverse-mode", "forward-mode"}, optional
        One sweep per element of the outputs, or per element of the inputs: "forward-mode" is faster where there are
        fewer inputs.

    Returns
    -------
    Tensor or nested tuple
        For each output and each input a Tensor of shape ``output.shape + input.shape``.

    Raises
    ------
    AssertionError
        For another strategy.
    RuntimeError
        In strict mode.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.autograd.functional.jacobian(lambda x: x * x, ng.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    _check_strategy(strategy)
    call = _Call(func, inputs, "jacobian", create_graph, strict)
    if strategy == "forward-mode":
        rows = _jacobian_forward(call, vectorize)
    else:
        rows = [_jacobian_row(call, nr, create_graph, vectorize) for nr in range(len(call.outputs))]
    return call.like_outputs([call.like_inputs(row) for row in rows])


def _check_strategy(strategy: str) -> None:
    if strategy not in STRATEGIES:
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs '
            'than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )


def _jacobian_row(call: _Call, nr: int, record: bool, vectorize: bool = False) -> list[Tensor]:
    """The Jacobians of one output with respect to each input."""
    out = call.outputs[nr]
    message = _INDEPENDENT.replace("The output", f"Output {nr}")
    if vectorize and out.size and out.requires_grad:
        # Recorded, since gradient rules take shortcuts over arrays where nothing is.
        found = over_entries(lambda seeds: call.gradients(seeds, True, [out]), [wrap(units(out))])
        if found is not None:
            return _rows_at_once(call, found, out, message)
    rows = [call.filled(call.gradients([seed], record, [out]), message) for seed in _units(out)]
    return [_stacked([row[i] for row in rows], out.shape, x.shape, x.dtype) for i, x in enumerate(call.inputs)]


def _rows_at_once(call: _Call, found: Sequence[Tensor | None], out: Tensor, independent: str) -> list[Tensor]:
    """The Jacobians from the gradients of all elements; zeros for inputs that `out` does not depend on."""
    for i, g in enumerate(found):
        if g is None and call.strict:
            raise RuntimeError(independent.format(i))
    with enable_grad():
        return [
            wrap(np.zeros(out.shape + x.shape, x.dtype)) if g is None else shape.reshape(g, out.shape + x.shape)
            for g, x in zip(found, call.inputs, strict=True)
        ]


def _units(like: Tensor) -> list[Tensor]:
    """Tensors of the shape of `like` with a single 1."""
    return [wrap(unit.reshape(like.shape)) for unit in np.eye(like.size, dtype=like.dtype)]


def _stacked(rows: list[Tensor], outer: tuple[int, ...], inner: tuple[int, ...], dtype: np.dtype) -> Tensor:
    if not rows:
        return wrap(np.zeros(outer + inner, dtype))
    with enable_grad():
        return shape.reshape(joining.stack(rows), outer + inner)


def _columns_of(call: _Call, x: Tensor, vectorize: bool) -> list[Tensor]:
    """The tangents of each output for every element of `x`, stacked."""
    found = None
    if vectorize and x.size:
        found = over_entries(lambda moves: list(_push(call.outputs, [x], moves, True)), [wrap(units(x))])
    if found is None:
        columns = [_push(call.outputs, [x], [unit], call.create_graph) for unit in _units(x)]
        stacks = [[column[nr] for column in columns] for nr in range(len(call.outputs))]
        return [_stacked(s, x.shape, o.shape, o.dtype) for s, o in zip(stacks, call.outputs, strict=True)]
    with enable_grad():
        return [shape.reshape(f, x.shape + o.shape) for f, o in zip(found, call.outputs, strict=True) if f is not None]


def _jacobian_forward(call: _Call, vectorize: bool) -> list[list[Tensor]]:
    found: list[list[Tensor]] = [[] for _ in call.outputs]
    for i, x in enumerate(call.inputs):
        columns = _columns_of(call, x, vectorize)
        for nr, out in enumerate(call.outputs):
            if call.strict and _is_independent(out, x):
                raise RuntimeError(
                    f"Output {nr} of the user-provided function is independent of input {i}. This is not allowed in "
                    "strict mode."
                )
            found[nr].append(_moved(columns[nr], x.ndim))
    return found


def _is_independent(out: Tensor, x: Tensor) -> bool:
    seed = wrap(np.zeros(out.shape, out.dtype))
    return not out.requires_grad or autograd.grad(out, x, seed, retain_graph=True, allow_unused=True)[0] is None


def _moved(stacked: Tensor, lead: int) -> Tensor:
    """The first `lead` axes to the end."""
    order = (*range(lead, stacked.ndim), *range(lead))
    with enable_grad():
        return shape.transpose(stacked, order) if stacked.ndim else stacked


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The matrix of second derivatives of a function that gives one number.

    Parameters
    ----------
    func, inputs, create_graph, strict, vectorize
        As for `jacobian`.
    outer_jacobian_strategy : {"reverse-mode", "forward-mode"}, optional
        How the gradient is differentiated again.

    Returns
    -------
    Tensor or tuple of tuples of Tensor
        For each pair of inputs a Tensor of shape ``one.shape + other.shape``.

    Raises
    ------
    RuntimeError
        If the function does not give a single number, or in strict mode.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.autograd.functional.hessian(lambda x: (x ** 3).sum(), ng.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    _check_strategy(outer_jacobian_strategy)
    in_tuple = _tensors(inputs, "inputs", "hessian")[1]

    def gradient(*at: Tensor) -> Any:
        call = _Call(func, at, "hessian", True, strict)
        grads = call.filled(call.gradients([None], True, [call.scalar("hessian")]), _INDEPENDENT)
        for i, g in enumerate(grads):
            if strict and not g.requires_grad:
                raise RuntimeError(_TWICE.format(i))
        return tuple(grads)

    found = jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found if in_tuple else found[0]


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """Product of the Hessian with a vector: forward mode over the gradient.

    Parameters
    ----------
    func, inputs, create_graph, strict
        As for `hessian`.
    v : Tensor or tuple of Tensor, optional
        One for each input.

    Returns
    -------
    output, products
        The products have the form of `inputs`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0])
    >>> ng.autograd.functional.hvp(lambda x: (x ** 3).sum(), x, ng.tensor([1.0, 1.0]))
    (tensor(9.), tensor([ 6., 12.]))
    """
    call, vectors, grads = _gradient_for_product(func, inputs, v, create_graph, strict, "hvp")
    products = _push(grads, call.inputs, vectors, create_graph)
    return call.like_outputs(call.outputs), call.like_inputs(products)


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """Product of a vector with the Hessian, by backward over backward: the same numbers as `hvp`.

    Parameters
    ----------
    func, inputs, v, create_graph, strict
        As for `hvp`.

    Returns
    -------
    output, products

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0])
    >>> ng.autograd.functional.vhp(lambda x: (x ** 3).sum(), x, ng.tensor([1.0, 1.0]))
    (tensor(9.), tensor([ 6., 12.]))
    """
    call, vectors, grads = _gradient_for_product(func, inputs, v, create_graph, strict, "vhp")
    products = call.filled(call.gradients(vectors, create_graph, grads), _TWICE)
    return call.like_outputs(call.outputs), call.like_inputs(products)


def _gradient_for_product(
    func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool, strict: bool, what: str
) -> tuple[_Call, list[Tensor], list[Tensor]]:
    """The call, the vectors and the gradient that can be differentiated."""
    call = _Call(func, inputs, what, create_graph, strict)
    out = call.scalar(what)
    vectors = _vectors(v, call.inputs, call.inputs_in_tuple, what, _NO_INPUT)
    grads = call.filled(call.gradients([None], True, [out]), _INDEPENDENT)
    for i, g in enumerate(grads):
        if strict and not g.requires_grad:
            raise RuntimeError(_TWICE.format(i))
    return call, vectors, grads


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
