"""One question at a time, asked of every function that moves elements: shape, joining, order, taking, sorting.

Each case is written for NumPy's names, so that the same text runs on arrays (the oracle) and on tensors.
"""

import numpy as np
import pytest
from helpers import assert_gradients, laid_out, parts, plain

import numbagrad as ng

M, V, T, S = (2, 6), (5,), (2, 3, 4), ()

# name: (function of (namespace, *tensors), shapes of the tensors)
SHAPE = {
    "reshape": (lambda np, x: np.reshape(x, (3, 4)), [M]),
    "reshape with -1": (lambda np, x: np.reshape(x, (3, -1)), [M]),
    "reshape to a length": (lambda np, x: np.reshape(x, -1), [M]),
    "reshape in Fortran order": (lambda np, x: np.reshape(x, (4, 3), order="F"), [M]),
    "reshape in the order of memory": (lambda np, x: np.reshape(x, (4, 3), order="A"), [M]),
    "reshape of a scalar": (lambda np, x: np.reshape(x, (1, 1)), [S]),
    "ravel": (lambda np, x: np.ravel(x), [T]),
    "ravel in Fortran order": (lambda np, x: np.ravel(x, "F"), [T]),
    "ravel in the order of memory": (lambda np, x: np.ravel(x, "K"), [T]),
    "ravel of a transpose, K": (lambda np, x: np.ravel(np.transpose(x, (2, 0, 1)), "K"), [T]),
    "flatten": (lambda np, x: x.flatten(), [M]),
    "flatten in Fortran order": (lambda np, x: x.flatten("F"), [M]),
    "transpose": (lambda np, x: np.transpose(x), [T]),
    "transpose with axes": (lambda np, x: np.transpose(x, (1, -1, 0)), [T]),
    "transpose of a vector": (lambda np, x: np.transpose(x), [V]),
    "method transpose": (lambda np, x: x.transpose(1, 2, 0), [T]),
    "T": (lambda np, x: x.T, [M]),
    "mT": (lambda np, x: x.mT, [T]),
    "permute_dims": (lambda np, x: np.permute_dims(x, (2, 1, 0)), [T]),
    "matrix_transpose": (lambda np, x: np.matrix_transpose(x), [T]),
    "swapaxes": (lambda np, x: np.swapaxes(x, 0, -1), [T]),
    "moveaxis": (lambda np, x: np.moveaxis(x, 0, -1), [T]),
    "moveaxis of several": (lambda np, x: np.moveaxis(x, (0, 1), (-1, 0)), [T]),
    "rollaxis": (lambda np, x: np.rollaxis(x, 2), [T]),
    "rollaxis to the end": (lambda np, x: np.rollaxis(x, 0, 3), [T]),
    "expand_dims": (lambda np, x: np.expand_dims(x, 1), [M]),
    "expand_dims of several": (lambda np, x: np.expand_dims(x, (0, -1)), [M]),
    "squeeze": (lambda np, x: np.squeeze(x), [(1, 3, 1)]),
    "squeeze an axis": (lambda np, x: np.squeeze(x, -1), [(1, 3, 1)]),
    "squeeze several": (lambda np, x: np.squeeze(x, (0, 2)), [(1, 3, 1)]),
    "squeeze all": (lambda np, x: np.squeeze(x), [(1, 1)]),
    "atleast_1d": (lambda np, x: np.atleast_1d(x), [S]),
    "atleast_1d of several": (lambda np, x, y: np.atleast_1d(x, y), [S, M]),
    "atleast_2d": (lambda np, x: np.atleast_2d(x), [V]),
    "atleast_2d of a scalar": (lambda np, x: np.atleast_2d(x), [S]),
    "atleast_3d of a scalar": (lambda np, x: np.atleast_3d(x), [S]),
    "atleast_3d of a vector": (lambda np, x: np.atleast_3d(x), [V]),
    "atleast_3d of a matrix": (lambda np, x: np.atleast_3d(x), [M]),
    "broadcast_to": (lambda np, x: np.broadcast_to(x, (4, 2, 3)), [(2, 1)]),
    "broadcast_to of a scalar": (lambda np, x: np.broadcast_to(x, (2, 2)), [S]),
    "broadcast_to a length": (lambda np, x: np.broadcast_to(x, 5), [V]),
    "broadcast_to nothing": (lambda np, x: np.broadcast_to(x, (0, 5)), [V]),
    "broadcast_arrays": (lambda np, x, y: np.broadcast_arrays(x, y), [(2, 1), (3,)]),
    "iterating over columns": (lambda np, x: list(x.T), [M]),
    "iterating over a vector": (lambda np, x: list(x), [V]),
}

if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
    SHAPE |= {
        "reshape with a copy": (lambda np, x: np.reshape(x, (3, 4), copy=True), [M]),
        "unstack": (lambda np, x: np.unstack(x), [M]),
        "unstack the last axis": (lambda np, x: np.unstack(x, axis=-1), [T]),
    }

ORDER = {
    "flip": (lambda np, x: np.flip(x), [M]),
    "flip of a scalar": (lambda np, x: np.flip(x), [S]),
    "flip an axis": (lambda np, x: np.flip(x, -1), [T]),
    "flip several": (lambda np, x: np.flip(x, (0, 2)), [T]),
    "fliplr": (lambda np, x: np.fliplr(x), [M]),
    "flipud": (lambda np, x: np.flipud(x), [M]),
    "roll": (lambda np, x: np.roll(x, 2), [M]),
    "roll an axis back": (lambda np, x: np.roll(x, -1, axis=1), [M]),
    "roll several": (lambda np, x: np.roll(x, (1, -2), axis=(0, 1)), [M]),
    "roll far": (lambda np, x: np.roll(x, 17), [V]),
    "roll one axis twice": (lambda np, x: np.roll(x, (1, 3), axis=(1, 1)), [M]),
    **{f"rot90 {k} times": (lambda np, x, k=k: np.rot90(x, k), [M]) for k in range(-1, 5)},
    "rot90 in another plane": (lambda np, x: np.rot90(x, 1, axes=(2, 0)), [T]),
    "repeat": (lambda np, x: np.repeat(x, 2), [M]),
    "repeat along an axis": (lambda np, x: np.repeat(x, 3, axis=0), [M]),
    "repeat once": (lambda np, x: np.repeat(x, 1, axis=0), [M]),
    "repeat never": (lambda np, x: np.repeat(x, 0), [M]),
    "repeat by counts": (lambda np, x: np.repeat(x, [2, 0], axis=0), [M]),
    "repeat by counts of the last axis": (lambda np, x: np.repeat(x, [0, 1, 2, 1, 0, 2], axis=-1), [M]),
    "repeat a scalar": (lambda np, x: np.repeat(x, 3), [S]),
    "method repeat": (lambda np, x: x.repeat(2, axis=1), [M]),
    "tile": (lambda np, x: np.tile(x, 2), [V]),
    "tile with more axes": (lambda np, x: np.tile(x, (2, 1, 2)), [M]),
    "tile with fewer axes": (lambda np, x: np.tile(x, (2,)), [T]),
    "tile once": (lambda np, x: np.tile(x, 1), [V]),
    "tile never": (lambda np, x: np.tile(x, (2, 0)), [V]),
    "tile a scalar": (lambda np, x: np.tile(x, (2, 2)), [S]),
    "resize to more": (lambda np, x: np.resize(x, (3, 3)), [V]),
    "resize to fewer": (lambda np, x: np.resize(x, 2), [M]),
    "pad": (lambda np, x: np.pad(x, 1), [M]),
    "pad sides apart": (lambda np, x: np.pad(x, (0, 2)), [M]),
    "pad axes apart": (lambda np, x: np.pad(x, ((0, 0), (1, 2))), [M]),
    "pad by a dict": (lambda np, x: np.pad(x, [(0, 0), (1, 1)]), [M]),
    "pad with a number": (lambda np, x: np.pad(x, 1, constant_values=3), [M]),
    "pad with numbers": (lambda np, x: np.pad(x, 1, constant_values=((1, 2), (3, 4))), [M]),
    "pad a scalar": (lambda np, x: np.pad(x, 0), [S]),
    **{
        f"pad {mode}": (lambda np, x, mode=mode: np.pad(x, ((1, 0), (3, 2)), mode), [M])
        for mode in ("edge", "reflect", "symmetric", "wrap")
    },
    "pad by more than there is": (lambda np, x: np.pad(x, 7, "symmetric"), [V]),
    "diag of a vector": (lambda np, x: np.diag(x), [V]),
    "diag of a vector, below": (lambda np, x: np.diag(x, -2), [V]),
    "diag of a matrix": (lambda np, x: np.diag(x, 1), [M]),
    "diagonal": (lambda np, x: np.diagonal(x), [T]),
    "diagonal in another plane": (lambda np, x: np.diagonal(x, -1, 2, 1), [T]),
    "diagonal out of reach": (lambda np, x: np.diagonal(x, 9), [T]),
    "diagflat": (lambda np, x: np.diagflat(x, 1), [(2, 2)]),
    "tril": (lambda np, x: np.tril(x, 1), [T]),
    "triu": (lambda np, x: np.triu(x, -1), [T]),
    "meshgrid": (lambda np, x, y: list(np.meshgrid(x, y)), [V, (2,)]),
    "meshgrid ij": (lambda np, x, y, z: list(np.meshgrid(x, y, z, indexing="ij")), [(2,), (3,), (1,)]),
    "meshgrid sparse": (lambda np, x, y: list(np.meshgrid(x, y, sparse=True)), [V, (2,)]),
    "meshgrid of one": (lambda np, x: list(np.meshgrid(x)), [V]),
}

JOINING = {
    "concatenate": (lambda np, x, y: np.concatenate([x, y]), [M, (1, 6)]),
    "concatenate columns": (lambda np, x, y: np.concatenate((x, y), axis=-1), [M, (2, 1)]),
    "concatenate flattened": (lambda np, x, y: np.concatenate([x, y], axis=None), [M, S]),
    "concatenate with nothing": (lambda np, x, y: np.concatenate([x, y]), [(0,), V]),
    "concatenate with itself": (lambda np, x: np.concatenate([x, x, x]), [V]),
    "concatenate one array": (lambda np, x: np.concatenate(x), [T]),
    "concatenate with an array": (lambda np, x: np.concatenate([x, [1.0, 2.0]]), [V]),
    "concat": (lambda np, x, y: np.concat([x, y]), [V, V]),
    "stack": (lambda np, x, y: np.stack([x, y]), [M, M]),
    "stack on the last axis": (lambda np, x, y: np.stack((x, y), axis=-1), [M, M]),
    "stack scalars": (lambda np, x, y: np.stack([x, y]), [S, S]),
    "vstack": (lambda np, x, y: np.vstack([x, y]), [(6,), M]),
    "hstack": (lambda np, x, y: np.hstack([x, y]), [M, (2, 1)]),
    "hstack vectors": (lambda np, x, y: np.hstack([x, y]), [V, S]),
    "dstack": (lambda np, x, y: np.dstack([x, y]), [M, M]),
    "dstack vectors": (lambda np, x, y: np.dstack([x, y]), [V, V]),
    "column_stack": (lambda np, x, y: np.column_stack([x, y]), [(2,), M]),
    "append": (lambda np, x: np.append(x, 4.0), [M]),
    "append along an axis": (lambda np, x, y: np.append(x, y, axis=0), [M, (1, 6)]),
    "block": (lambda np, x, y: np.block([[x, y], [y, x]]), [(2, 2), (2, 2)]),
    "block of unequal ndim": (lambda np, x, y: np.block([x, y]), [V, S]),
    "block of vectors": (lambda np, x, y: np.block([x, y]), [V, (2,)]),
    "block of one": (lambda np, x: np.block(x), [M]),
    "block with numbers": (lambda np, x: np.block([[x, 1.0], [2.0, 3.0]]), [S]),
    "split": (lambda np, x: np.split(x, 2), [M]),
    "split at positions": (lambda np, x: np.split(x, [1, 4], axis=1), [M]),
    "split at odd positions": (lambda np, x: np.split(x, [3, 1, 9, -1]), [V]),
    "array_split": (lambda np, x: np.array_split(x, 3), [V]),
    "array_split into more than there are": (lambda np, x: np.array_split(x, 7), [V]),
    "vsplit": (lambda np, x: np.vsplit(x, 2), [M]),
    "hsplit": (lambda np, x: np.hsplit(x, 3), [M]),
    "hsplit a vector": (lambda np, x: np.hsplit(x, [2]), [V]),
    "dsplit": (lambda np, x: np.dsplit(x, 2), [T]),
    "delete": (lambda np, x: np.delete(x, 1), [V]),
    "delete several": (lambda np, x: np.delete(x, [0, -1], axis=1), [M]),
    "delete a slice": (lambda np, x: np.delete(x, slice(None, None, 2), axis=1), [M]),
    "delete flattened": (lambda np, x: np.delete(x, 3), [M]),
    "insert": (lambda np, x: np.insert(x, 1, 9.0), [V]),
    "insert a tensor": (lambda np, x, y: np.insert(x, 2, y), [V, S]),
    "insert a column": (lambda np, x, y: np.insert(x, 1, y, axis=1), [M, (2,)]),
    "insert columns": (lambda np, x, y: np.insert(x, [1], y, axis=1), [M, (2, 3)]),
    "insert at several": (lambda np, x, y: np.insert(x, [0, 3, 3], y), [V, (3,)]),
    "insert one at several": (lambda np, x: np.insert(x, [1, 2], 7.0, axis=0), [M]),
    "insert by a slice": (lambda np, x, y: np.insert(x, slice(1, 4), y), [V, (3,)]),
}

TAKING = {
    "take": (lambda np, x: np.take(x, [0, 2, 2, -1]), [M]),
    "take one": (lambda np, x: np.take(x, 3), [M]),
    "take along an axis": (lambda np, x: np.take(x, [[1, 0], [1, 1]], axis=1), [M]),
    "take rows": (lambda np, x: np.take(x, [1, 1, 0], axis=0), [M]),
    "take one row": (lambda np, x: np.take(x, 1, axis=0), [M]),
    "take wrapping": (lambda np, x: np.take(x, [7, -9], axis=1, mode="wrap"), [M]),
    "take clipping": (lambda np, x: np.take(x, [7, -9], axis=1, mode="clip"), [M]),
    "take nothing": (lambda np, x: np.take(x, np.zeros(0, int), axis=1), [M]),
    "method take": (lambda np, x: x.take([1, 0], 1), [M]),
    "take_along_axis": (lambda np, x: np.take_along_axis(x, _order(M, 1), 1), [M]),
    "take_along_axis fewer": (lambda np, x: np.take_along_axis(x, _order((1, 4, 4), 1)[:, :2] % 3, 1), [T]),
    "take_along_axis flattened": (lambda np, x: np.take_along_axis(x, _order((5,), 0), None), [M]),
    "compress": (lambda np, x: np.compress([True, False, True], x, axis=1), [M]),
    "compress flattened": (lambda np, x: np.compress([0, 1, 1], x), [M]),
    "extract": (lambda np, x: np.extract([[1, 0, 0, 1, 1, 0]] * 2, x), [M]),
    "choose": (lambda np, x, y: np.choose([[0], [1]], [x, y]), [M, (6,)]),
    "choose wrapping": (lambda np, x, y: np.choose([3, -1], [x, y], mode="wrap"), [(2,), S]),
    "choose clipping": (lambda np, x, y: np.choose([3, -1], [x, y], mode="clip"), [(2,), (2,)]),
    "select": (lambda np, x, y: np.select([_mask(M), _mask((6,))], [x, y], 5.0), [M, (6,)]),
    "select with a default": (lambda np, x, y: np.select([_mask(M)], [x], y), [M, S]),
}

SORTING = {
    "sort": (lambda np, x: np.sort(x), [M]),
    "sort along the first axis": (lambda np, x: np.sort(x, axis=0), [T]),
    "sort flattened": (lambda np, x: np.sort(x, axis=None), [M]),
    "sort stably": (lambda np, x: np.sort(x, stable=True), [V]),
    "partition": (lambda np, x: np.sort(np.partition(x, 2)[:, :2]), [M]),
    "unique": (lambda np, x: np.unique(x), [M]),
    "unique slices": (lambda np, x: np.unique(x, axis=1), [M]),
}

# Functions without a gradient.
PLACES = {
    "argsort": (lambda np, x: np.argsort(x), [M]),
    "argsort along the first axis": (lambda np, x: np.argsort(x, axis=0), [T]),
    "argsort flattened": (lambda np, x: np.argsort(x, axis=None), [M]),
    "argpartition": (lambda np, x: np.argpartition(x, 2), [V]),
    "searchsorted": (lambda np, x, y: np.searchsorted(np.sort(x), y), [V, M]),
    "searchsorted right": (lambda np, x, y: np.searchsorted(x, y, "right", np.argsort(x)), [V, S]),
    "nonzero": (lambda np, x: np.nonzero(x), [M]),
    "flatnonzero": (lambda np, x: np.flatnonzero(x), [M]),
    "argwhere": (lambda np, x: np.argwhere(x), [M]),
    "unique with places": (lambda np, x: np.unique(x, True, True, True)[1:], [M]),
    "tril_indices_from": (lambda np, x: np.tril_indices_from(x, 1), [M]),
    "triu_indices_from": (lambda np, x: np.triu_indices_from(x), [M]),
    "diag_indices_from": (lambda np, x: np.diag_indices_from(x), [(3, 3)]),
}

MOVING = SHAPE | ORDER | JOINING | TAKING | SORTING
METHOD_ONLY = {"flatten", "flatten in Fortran order", "method transpose", "method repeat", "method take"}
ASKS_FOR_LAYOUT = {"reshape in the order of memory", "ravel in the order of memory", "ravel of a transpose, K"}
DTYPES = ["float64", "float32", "complex128", "int64", "bool"]
LAYOUTS = ["C", "F", "strided", "reversed"]


def _order(shape, axis):
    return np.argsort(np.random.default_rng(3).normal(size=shape), axis)


def _mask(shape):
    return np.random.default_rng(4).random(shape) < 0.5


def arrays_for(shapes, dtype="float64", layout="C"):
    """Different values, far enough apart that a small step does not change their order."""
    rng = np.random.default_rng(7)
    made = []
    for shape in shapes:
        values = rng.permutation(int(np.prod(shape))).reshape(shape) * 0.5 - 1.0
        values = values + 1j * values[..., ::-1] if dtype == "complex128" and shape else values
        made.append(laid_out(np.asarray(values * 2 if dtype == "int64" else values).astype(dtype), layout))
    return made


def every(table):
    return pytest.mark.parametrize(("function", "shapes"), table.values(), ids=table.keys())


def check_equal(got, want, dtype=True):
    got, want = parts(got), parts(want)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert isinstance(g, ng.Tensor)
        assert g.shape == np.shape(w)
        assert not dtype or g.dtype == np.asarray(w).dtype
        np.testing.assert_array_equal(plain(g), w)


@pytest.mark.parametrize("dtype", DTYPES)
@every(MOVING | PLACES)
def test_values_and_dtype_are_numpys(function, shapes, dtype):
    arrays = arrays_for(shapes, dtype)
    check_equal(function(ng, *map(ng.tensor, arrays)), function(np, *arrays))


@pytest.mark.parametrize("layout", LAYOUTS[1:])
@every(MOVING)
def test_memory_layout_does_not_matter(function, shapes, layout):
    arrays = arrays_for(shapes, layout=layout)
    check_equal(function(ng, *map(ng.asarray, arrays)), function(np, *arrays))


@pytest.mark.parametrize("requires_grad", [False, True], ids=["constant", "tracked"])
@every({k: v for k, v in (MOVING | PLACES).items() if k not in METHOD_ONLY})
def test_numpys_own_function_takes_tensors(function, shapes, requires_grad):
    arrays = arrays_for(shapes)
    tensors = [ng.tensor(a, requires_grad=requires_grad) for a in arrays]
    check_equal(function(np, *tensors), function(np, *arrays))


@pytest.mark.parametrize("layout", LAYOUTS)
@every(MOVING)
def test_views_are_where_numpy_has_views(function, shapes, layout):
    arrays = arrays_for(shapes, layout=layout)
    tensors = list(map(ng.asarray, arrays))
    for got, want in zip(parts(function(ng, *tensors)), parts(function(np, *arrays)), strict=True):
        shared = [np.may_share_memory(want, a) for a in arrays]
        assert [np.may_share_memory(plain(got), a) for a in arrays] == shared
        if any(shared) and want.ndim:
            assert got._base is not None or any(got is t for t in tensors)


@pytest.mark.parametrize("name", ["broadcast_to", "diagonal", "transpose"])
def test_views_can_be_written_where_numpys_can(name):
    function, shapes = MOVING[name]
    arrays = arrays_for(shapes)
    view = function(ng, *map(ng.asarray, arrays))
    if function(np, *arrays).flags.writeable:
        view[...] = 0.0
    else:
        with pytest.raises(ValueError, match="read-only"):
            view[...] = 0.0


@every(MOVING)
def test_derivatives_are_those_of_differences(function, shapes):
    assert_gradients(lambda *xs: function(ng, *xs), *arrays_for(shapes))


@pytest.mark.parametrize("layout", LAYOUTS[1:])
@every({k: v for k, v in MOVING.items() if k not in ASKS_FOR_LAYOUT})
def test_gradient_does_not_depend_on_the_layout(function, shapes, layout):
    def gradients(layout):
        tensors = [ng.asarray(a).requires_grad_() for a in arrays_for(shapes, layout=layout)]
        outs = parts(function(ng, *tensors))
        weights = [np.arange(1.0, o.size + 1).reshape(o.shape) for o in outs]
        return ng.autograd.grad(outs, tensors, weights, allow_unused=True)

    for got, want in zip(gradients(layout), gradients("C"), strict=True):
        np.testing.assert_array_equal(plain(got), plain(want))


@every(MOVING)
def test_float32_gradients_are_float32(function, shapes):
    tensors = [ng.tensor(a, requires_grad=True) for a in arrays_for(shapes, "float32")]
    outs = parts(function(ng, *tensors))
    grads = ng.autograd.grad([o.sum() for o in outs], tensors, allow_unused=True)
    assert all(g is None or g.dtype == np.float32 for g in grads)


@every(SHAPE | ORDER | JOINING | TAKING)
def test_complex_gradient_is_that_of_both_parts(function, shapes):
    # Elements are only moved, so real and imaginary parts never mix.
    outs = parts(function(np, *arrays_for(shapes)))
    rng = np.random.default_rng(1)
    weights = [np.asarray(rng.normal(size=np.shape(o)) + 1j * rng.normal(size=np.shape(o))) for o in outs]

    def gradients(dtype, weights):
        tensors = [ng.tensor(a, requires_grad=True) for a in arrays_for(shapes, dtype)]
        return [plain(g) for g in ng.autograd.grad(parts(function(ng, *tensors)), tensors, weights)]

    got = gradients("complex128", weights)
    real, imag = gradients("float64", [w.real for w in weights]), gradients("float64", [w.imag for w in weights])
    for g, r, i in zip(got, real, imag, strict=True):
        np.testing.assert_allclose(g, r + 1j * i, rtol=1e-12)


@every(MOVING)
def test_tangents_move_as_differences_do(function, shapes):
    arrays = arrays_for(shapes)
    rng = np.random.default_rng(2)
    tangents = [rng.normal(size=a.shape) for a in arrays]
    _, moved = ng.jvp(lambda *xs: function(ng, *xs), tuple(arrays), tuple(tangents))
    step = 1e-3
    after = function(np, *(a + step * t for a, t in zip(arrays, tangents, strict=True)))
    before = function(np, *(a - step * t for a, t in zip(arrays, tangents, strict=True)))
    for m, a, b in zip(parts(moved), parts(after), parts(before), strict=True):
        np.testing.assert_allclose(plain(m), (a - b) / (2 * step), atol=1e-9)


EMPTY = {
    "reshape": lambda np, x: np.reshape(x, (3, 0)),
    "ravel": lambda np, x: np.ravel(x),
    "transpose": lambda np, x: np.transpose(x),
    "broadcast_to": lambda np, x: np.broadcast_to(x, (2, 0, 3)),
    "flip": lambda np, x: np.flip(x),
    "roll": lambda np, x: np.roll(x, 1, axis=1),
    "repeat": lambda np, x: np.repeat(x, 2, axis=0),
    "tile": lambda np, x: np.tile(x, (2, 2)),
    "pad": lambda np, x: np.pad(x, ((1, 1), (0, 0))),
    "concatenate": lambda np, x: np.concatenate([x, x], axis=1),
    "stack": lambda np, x: np.stack([x, x]),
    "split": lambda np, x: np.split(x, 3, axis=1),
    "take": lambda np, x: np.take(x, [0, 1], axis=1),
    "sort": lambda np, x: np.sort(x, axis=1),
    "unique": lambda np, x: np.unique(x),
    "diagonal": lambda np, x: np.diagonal(x),
    "tril": lambda np, x: np.tril(x),
    "resize": lambda np, x: np.resize(x, (2, 2)),
    "select": lambda np, x: np.select([x > 0], [x]),
    "choose": lambda np, x: np.choose(np.zeros((0, 3), int), [x, x]),
    "index": lambda np, x: x[:, [0, 0, 2]],
    "mask": lambda np, x: x[x > 0],
}


@pytest.mark.parametrize("function", EMPTY.values(), ids=EMPTY.keys())
def test_empty_tensors_pass_through(function):
    x = ng.tensor(np.zeros((0, 3)), requires_grad=True)
    out = function(ng, x)
    check_equal(out, function(np, np.zeros((0, 3))))
    total = sum(o.sum() for o in parts(out))
    if total.requires_grad:
        total.backward()
        assert x.grad.shape == (0, 3)


BAD = {
    "reshape to another size": (lambda x: ng.reshape(x, (5, 5)), ValueError, r"reshape.*\(2, 6\).*\(5, 5\)"),
    "reshape with two -1": (lambda x: ng.reshape(x, (-1, -1)), ValueError, "reshape"),
    "reshape that must not copy": (lambda x: ng.reshape(x.T, -1, copy=False), ValueError, "copy"),
    "transpose with few axes": (lambda x: ng.transpose(x, (0,)), ValueError, r"transpose.*\(2, 6\)"),
    "transpose with an axis twice": (lambda x: ng.transpose(x, (0, 0)), ValueError, "repeated axis"),
    "transpose out of bounds": (lambda x: ng.transpose(x, (0, 2)), np.exceptions.AxisError, "out of bounds"),
    "swapaxes out of bounds": (lambda x: ng.swapaxes(x, 0, 2), np.exceptions.AxisError, "axis2"),
    "moveaxis of unequal length": (lambda x: ng.moveaxis(x, (0, 1), 0), ValueError, "moveaxis"),
    "expand_dims out of bounds": (lambda x: ng.expand_dims(x, 4), np.exceptions.AxisError, "out of bounds"),
    "squeeze a long axis": (lambda x: ng.squeeze(x, 1), ValueError, r"squeeze.*\(2, 6\)"),
    "broadcast_to a smaller shape": (lambda x: ng.broadcast_to(x, (6,)), ValueError, r"\(2, 6\).*\(6,\)"),
    "broadcast_arrays that do not fit": (lambda x: ng.broadcast_arrays(x, x.T), ValueError, "broadcast_arrays"),
    "matrix_transpose of a vector": (lambda x: ng.matrix_transpose(x[0]), ValueError, r"\(6,\)"),
    "flip out of bounds": (lambda x: ng.flip(x, 2), np.exceptions.AxisError, "out of bounds"),
    "fliplr of a vector": (lambda x: ng.fliplr(x[0]), ValueError, "fliplr"),
    "roll by a fraction": (lambda x: ng.roll(x, 1.5), TypeError, "integer"),
    "rot90 in one axis": (lambda x: ng.rot90(x, axes=(1, 1)), ValueError, "rot90"),
    "repeat by wrong counts": (lambda x: ng.repeat(x, [1, 2, 3], axis=0), ValueError, "broadcast"),
    "repeat by a negative count": (lambda x: ng.repeat(x, -1), ValueError, "negative"),
    "tile by negative counts": (lambda x: ng.tile(x, -1), ValueError, "negative"),
    "pad by a negative width": (lambda x: ng.pad(x, -1), ValueError, "negative"),
    "pad by a fraction": (lambda x: ng.pad(x, 1.5), TypeError, "integral"),
    "pad with too many widths": (lambda x: ng.pad(x, ((1, 1),) * 3), ValueError, "2 axes"),
    "pad with a function": (lambda x: ng.pad(x, 1, lambda *a: None), NotImplementedError, "function"),
    "pad in an unknown mode": (lambda x: ng.pad(x, 1, "means"), ValueError, "means.*mean"),
    "pad with an unknown keyword": (lambda x: ng.pad(x, 1, "edge", constant_values=1), ValueError, "constant_values"),
    "concatenate nothing": (lambda x: ng.concatenate([]), ValueError, "at least one"),
    "concatenate unequal shapes": (lambda x: ng.concatenate([x, x.T]), ValueError, r"\(2, 6\), \(6, 2\)"),
    "concatenate scalars": (lambda x: ng.concatenate([x[0, 0], x[0, 0]]), ValueError, "zero-dimensional"),
    "concatenate out of bounds": (lambda x: ng.concatenate([x], axis=2), np.exceptions.AxisError, "out of bounds"),
    "concatenate into out": (lambda x: ng.concatenate([x, x], out=np.zeros((4, 6))), TypeError, "out="),
    "stack unequal shapes": (lambda x: ng.stack([x, x.T]), ValueError, r"\(2, 6\), \(6, 2\)"),
    "stack nothing": (lambda x: ng.stack([]), ValueError, "at least one"),
    "stack out of bounds": (lambda x: ng.stack([x], axis=3), np.exceptions.AxisError, "out of bounds"),
    "block of unequal depth": (lambda x: ng.block([[x], x]), ValueError, "depth"),
    "block of tuples": (lambda x: ng.block(([x],)), TypeError, "tuple"),
    "block of nothing": (lambda x: ng.block([]), ValueError, "empty"),
    "split unequally": (lambda x: ng.split(x, 4, axis=1), ValueError, r"split.*\(2, 6\)"),
    "split into nothing": (lambda x: ng.array_split(x, 0), ValueError, "larger than 0"),
    "dsplit a matrix": (lambda x: ng.dsplit(x, 2), ValueError, "3 or more"),
    "delete out of bounds": (lambda x: ng.delete(x, 6, axis=1), IndexError, "out of bounds"),
    "insert what does not fit": (lambda x: ng.insert(x, 0, [1, 2, 3], axis=0), ValueError, r"\(1, 3\)|\(3,\)"),
    "take out of bounds": (lambda x: ng.take(x, [6], axis=1), IndexError, "out of bounds"),
    "take at fractions": (lambda x: ng.take(x, [0.5]), TypeError, "integers"),
    "take in an unknown mode": (lambda x: ng.take(x, [0], mode="bounce"), ValueError, "bounce"),
    "take_along_axis with few axes": (lambda x: ng.take_along_axis(x, [0], 1), ValueError, "dimensions"),
    "take_along_axis at fractions": (lambda x: ng.take_along_axis(x, [[0.5]], 1), IndexError, "integer"),
    "compress by a matrix": (lambda x: ng.compress(x > 0, x), ValueError, "1-d"),
    "choose out of bounds": (lambda x: ng.choose([2], [x, x]), ValueError, "choose"),
    "select with few choices": (lambda x: ng.select([x > 0, x > 1], [x]), ValueError, "select"),
    "select by numbers": (lambda x: ng.select([x], [x]), TypeError, "boolean"),
    "sort out of bounds": (lambda x: ng.sort(x, axis=2), np.exceptions.AxisError, "out of bounds"),
    "diagonal of a vector": (lambda x: ng.diagonal(x[0]), ValueError, "diagonal"),
    "diagonal of one axis": (lambda x: ng.diagonal(x, 0, 1, 1), ValueError, "axis1"),
    "diag of a cube": (lambda x: ng.diag(x.reshape(1, 2, 6)), ValueError, "diag"),
    "meshgrid in an unknown order": (lambda x: ng.meshgrid(x, indexing="yx"), ValueError, "yx"),
    "iterating over a scalar": (lambda x: iter(x[0, 0]), TypeError, "0-d"),
    "an unknown keyword": (lambda x: ng.reshape(x, -1, oder="F"), TypeError, "oder"),
}


@pytest.mark.parametrize(("call", "error", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_and_changes_nothing(call, error, message):
    (values,) = arrays_for([M])
    x = ng.tensor(values, requires_grad=True)
    with pytest.raises(error, match=message):
        call(x)
    np.testing.assert_array_equal(plain(x), values)
    assert x.is_leaf and x.grad is None and x.shape == M


NUMPY_REFUSES = [
    "reshape to another size",
    "transpose with few axes",
    "transpose out of bounds",
    "swapaxes out of bounds",
    "squeeze a long axis",
    "broadcast_to a smaller shape",
    "flip out of bounds",
    "concatenate unequal shapes",
    "stack unequal shapes",
    "block of unequal depth",
    "split unequally",
    "take out of bounds",
    "sort out of bounds",
]


@pytest.mark.parametrize("name", NUMPY_REFUSES)
def test_errors_are_of_numpys_kind(name, monkeypatch):
    call, error, _ = BAD[name]
    monkeypatch.setitem(globals(), "ng", np)
    with pytest.raises(error):
        call(arrays_for([M])[0])


def test_a_written_base_shows_in_its_slices():
    base = ng.tensor(np.zeros((2, 3)))
    first, second = base
    base[...] = ng.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    np.testing.assert_array_equal(plain(second), [4, 5, 6])
    assert first.requires_grad and second.requires_grad


def test_a_slice_of_an_iteration_can_be_written():
    x = ng.tensor(np.ones((2, 3)), requires_grad=True)
    y = x * 2.0
    for factor, row in zip((3.0, 5.0), y, strict=True):
        row *= factor
    y.sum().backward()
    np.testing.assert_array_equal(plain(x.grad), [[6.0] * 3, [10.0] * 3])


def test_sort_and_partition_methods_work_in_place():
    x = ng.tensor([[3.0, 1.0, 2.0], [6.0, 5.0, 4.0]], requires_grad=True)
    y = x * 1.0
    assert y.sort(axis=0) is None
    y.partition(1)
    (y * ng.tensor([1.0, 10.0, 100.0])).sum().backward()
    np.testing.assert_array_equal(plain(y)[:, 1], [2.0, 5.0])
    np.testing.assert_array_equal(np.sort(plain(x.grad).ravel()), [1, 1, 10, 10, 100, 100])


def test_the_gradient_of_equal_values_goes_to_one_of_them():
    x = ng.tensor([2.0, 1.0, 2.0, 1.0], requires_grad=True)
    ng.unique(x).backward([1.0, 10.0])
    np.testing.assert_array_equal(plain(x.grad), [10.0, 1.0, 0.0, 0.0])


def test_sorting_with_nan_matches_numpy():
    values = np.array([[3.0, np.nan, 1.0], [np.nan, np.nan, 0.0]])
    for tracked in (False, True):
        x = ng.tensor(values, requires_grad=tracked)
        np.testing.assert_array_equal(plain(ng.sort(x)), np.sort(values))
        np.testing.assert_array_equal(plain(ng.unique(x)), np.unique(values))


def test_integers_and_booleans_carry_no_gradient():
    x = ng.tensor([3.0, 1.0], requires_grad=True)
    for out in (ng.argsort(x), *ng.nonzero(x), ng.searchsorted(x, 2.0), ng.stack([x > 1, x > 2])):
        assert not out.requires_grad and out.is_leaf


def test_joining_promotes_like_numpy():
    dtypes = [np.float32, np.float64, np.int32, np.bool_, np.complex64]
    for one in dtypes:
        for other in dtypes:
            a, b = np.ones(2, one), np.ones(3, other)
            got = ng.concatenate([ng.tensor(a), ng.tensor(b)])
            assert got.dtype == np.concatenate([a, b]).dtype
            assert ng.stack([ng.tensor(a), ng.tensor(b[:2])]).dtype == got.dtype
    assert ng.concatenate([ng.tensor(np.ones(2))], dtype=np.float32).dtype == np.float32
    with pytest.raises(TypeError, match="Cannot cast"):
        ng.concatenate([ng.tensor(np.ones(2))], dtype=np.int64)


def test_gradients_of_mixed_dtypes_come_back_in_their_own():
    x = ng.tensor(np.ones(2, np.float32), requires_grad=True)
    y = ng.tensor(np.ones(2), requires_grad=True)
    ng.concatenate([x, y]).sum().backward()
    assert x.grad.dtype == np.float32 and y.grad.dtype == np.float64


def test_numpy_asks_for_shape_ndim_and_size():
    x = ng.tensor(np.zeros((2, 3)), requires_grad=True)
    assert (np.shape(x), np.ndim(x), np.size(x), np.size(x, 1)) == ((2, 3), 2, 6, 3)


def test_a_pad_dict_names_axes():
    if np.lib.NumpyVersion(np.__version__) < "2.2.0":
        pytest.skip("NumPy takes a dict from 2.2 on")
    a = np.ones((2, 3))
    check_equal(ng.pad(ng.tensor(a), {-1: (1, 2)}), np.pad(a, {-1: (1, 2)}))
