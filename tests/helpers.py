"""What several test files need: gradients by central differences."""

import numpy as np

import numbagrad as ng


def parts(out):
    """The tensors (or arrays) of a result that may be one, a tuple or a list of them."""
    return list(out) if isinstance(out, (tuple, list)) else [out]


def plain(x):
    """The values of a tensor, whether or not it is in a graph."""
    return np.asarray(x.detach() if isinstance(x, ng.Tensor) else x)


def laid_out(array, layout):
    """The same values in another memory layout: "C", "F", "strided" or "reversed"."""
    if layout == "C" or array.ndim == 0:
        return array.copy()
    if layout == "F":
        return np.asfortranarray(array)
    step = 2 if layout == "strided" else -1
    made = np.empty([n * abs(step) for n in array.shape], array.dtype)[(slice(None, None, step),) * array.ndim]
    made[...] = array
    return made


def _loss(f, tensors, seed):
    """A number that depends on every element of f(*tensors), and not linearly."""
    rng = np.random.default_rng(seed)
    total = ng.tensor(0.0)
    for y in parts(f(*tensors)):
        if y.dtype.kind == "f":
            total = total + (y * rng.normal(size=y.shape) + y * y * rng.uniform(0.5, 1.5, y.shape)).sum()
    return total


def _gradients(f, arrays, seed, create_graph=False):
    leaves = [ng.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    wanted = [t for t in leaves if t.requires_grad]
    loss = _loss(f, leaves, seed)
    if not loss.requires_grad:
        return [ng.zeros_like(t) for t in wanted], wanted
    grads = ng.autograd.grad(loss, wanted, create_graph=create_graph, allow_unused=True, materialize_grads=True)
    return list(grads), wanted


def _along(f, h):
    """Fourth-order central difference of f(step) at 0."""
    return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)


def numeric_gradient(f, arrays, which, h=1e-3):
    """Gradient of the number f(*arrays) with respect to one of the arrays, by central differences."""
    array = arrays[which]
    grad = np.zeros(array.shape)

    def moved(place, step):
        other = array.copy()
        other[place] += step
        return f(*arrays[:which], other, *arrays[which + 1 :])

    for place in np.ndindex(array.shape):
        grad[place] = _along(lambda step, place=place: moved(place, step), h)
    return grad


def assert_gradients(f, *arrays, order=2, rtol=1e-6, atol=1e-7, seed=0, h=1e-3):
    """The derivatives of f, from tensors to a tensor or several, are those of central differences.

    A nonlinear function of the result is differentiated, so that the second derivative of a linear f says something.
    Integer arrays are passed on as they are.
    """
    arrays = [np.array(a) for a in arrays]
    floats = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    grads, _ = _gradients(f, arrays, seed)

    def loss(*values):
        with ng.no_grad():
            return _loss(f, [ng.tensor(v) for v in values], seed).item()

    for i, grad in zip(floats, grads, strict=True):
        assert grad.shape == arrays[i].shape and grad.dtype == arrays[i].dtype
        want = numeric_gradient(loss, arrays, i, h)
        np.testing.assert_allclose(plain(grad), want, rtol, atol, err_msg=f"gradient of argument {i}")
    if order > 1:
        _assert_second(f, arrays, floats, rtol, atol, seed, h)


def _assert_second(f, arrays, floats, rtol, atol, seed, h):
    """The Hessian times a direction, by a second backward and as a difference of gradients."""
    rng = np.random.default_rng(seed + 1)
    direction = [rng.normal(size=a.shape) if i in floats else 0 for i, a in enumerate(arrays)]
    grads, leaves = _gradients(f, arrays, seed, create_graph=True)
    slope = sum((g * direction[i]).sum() for i, g in zip(floats, grads, strict=True))
    second = ng.autograd.grad(slope, leaves, allow_unused=True, materialize_grads=True)

    def moved(step):
        there = [a + step * d if i in floats else a for i, (a, d) in enumerate(zip(arrays, direction, strict=True))]
        return np.concatenate([plain(g).ravel() for g in _gradients(f, there, seed)[0]])

    got = np.concatenate([plain(g).ravel() for g in second])
    np.testing.assert_allclose(got, _along(moved, h), rtol, atol, err_msg="second derivative")
