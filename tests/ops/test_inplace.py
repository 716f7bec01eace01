"""Writing in place: what is written is what is recorded."""

import numpy as np
import pytest

import numbagrad as ng


def leaf(data):
    return ng.tensor(np.asarray(data, dtype=float), requires_grad=True)


def same(got, want):
    np.testing.assert_allclose(np.asarray(got.detach() if hasattr(got, "detach") else got), want, rtol=1e-12)


AUGMENTED = {
    "+=": lambda x, y: x.__iadd__(y),
    "-=": lambda x, y: x.__isub__(y),
    "*=": lambda x, y: x.__imul__(y),
    "/=": lambda x, y: x.__itruediv__(y),
    "**=": lambda x, y: x.__ipow__(y),
    "%=": lambda x, y: x.__imod__(y),
}
PLAIN = {
    "+=": lambda x, y: x + y,
    "-=": lambda x, y: x - y,
    "*=": lambda x, y: x * y,
    "/=": lambda x, y: x / y,
    "**=": lambda x, y: x**y,
    "%=": lambda x, y: x % y,
}


@pytest.mark.parametrize("other", [2, 1.5, np.array([[1.0, 2.0, 3.0]])], ids=["int", "float", "row"])
@pytest.mark.parametrize("op", AUGMENTED)
def test_augmented_assignment_computes_and_differentiates_like_the_operator(op, other):
    a = np.array([[4.0, 5.0, 6.5], [1.5, 2.5, 3.5]])
    x, z = leaf(a), leaf(a)
    y = x * 1.0
    memory = y.detach().numpy()
    written = AUGMENTED[op](y, other)
    assert written is y and np.shares_memory(memory, y.detach().numpy())
    plain = PLAIN[op](z * 1.0, other)
    same(y, np.asarray(plain.detach()))
    y.sum().backward()
    plain.sum().backward()
    same(x.grad, np.asarray(z.grad))


@pytest.mark.parametrize("op", AUGMENTED)
def test_without_gradient_the_memory_is_written_and_counted(op):
    x = ng.tensor([4.0, 5.0])
    alias = x.detach()
    AUGMENTED[op](x, 3.0)
    same(alias, PLAIN[op](np.array([4.0, 5.0]), 3.0))
    assert x._version == 1 and alias._version == 1


def test_leaves_refuse_and_stay_as_they_are():
    x = leaf([1, 2])
    for write in (lambda: x.__iadd__(1), lambda: x.__setitem__(0, 5.0), lambda: x[:1].__imul__(2), x.zero_):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            write()
    same(x, [1, 2])
    assert x.is_leaf
    with ng.no_grad():
        x -= 0.5
        x[0] = 9.0
    same(x, [9, 1.5])
    assert x.is_leaf and x.requires_grad


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda y: y.__iadd__(np.ones((2, 2))), ValueError),
        (lambda y: y.__iadd__(1j), TypeError),
        (lambda y: y.__setitem__(7, 1.0), IndexError),
        (lambda y: y.__setitem__(slice(0, 1), np.ones(3)), ValueError),
        (lambda y: y.__setitem__(0, 1j), TypeError),
        (lambda y: y.__iadd__("a"), TypeError),
    ],
)
def test_writes_that_do_not_fit(write, error):
    x = leaf([1, 2])
    y = x * 2
    with pytest.raises(error):
        write(y)
    same(y, [2, 4])
    y.sum().backward()
    same(x.grad, [2, 2])


def test_an_integer_tensor_does_not_become_float_in_place():
    x = ng.tensor([1, 2])
    with pytest.raises(TypeError, match="cannot be cast"):
        x += 0.5
    assert x.tolist() == [1, 2]


def test_overwriting_what_backward_needs_names_the_op():
    x = leaf([0.5, 1.0])
    y = ng.exp(x)
    z = y.sum()
    y[0] = 100.0
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*ExpBackward"):
        (y * z).sum().backward()


def test_a_write_after_the_value_was_used_is_noticed():
    x = leaf([1, 2])
    y = x * 2
    z = (y * y).sum()
    y += 1
    with pytest.raises(RuntimeError, match="version 1; expected version 0"):
        z.backward()
    assert x.grad is None


def test_a_write_that_nobody_needs_is_fine():
    x = leaf([1, 2])
    y = x * 2
    z = (y + 3).sum()
    y += 1
    z.backward()
    same(x.grad, [2, 2])


ASSIGNMENTS = [
    (slice(1, 3), 2),
    (0, None),
    (np.array([True, False, True, False]), 2),
    ([0, 2, 3], 3),
    ([1, 1, 3], 3),
    (Ellipsis, 4),
    (slice(None, None, -1), 4),
]


@pytest.mark.parametrize(("index", "count"), ASSIGNMENTS, ids=str)
def test_assignment_splits_the_gradient(index, count):
    a, v = np.arange(1.0, 5.0), np.arange(1.0, 1 + (count or 1)) * 10
    x, values = leaf(a), leaf(v if count else v[0])
    y = x * 1.0
    y[index] = values
    want = a.copy()
    want[index] = np.asarray(values.detach())
    same(y, want)
    w = np.array([1.0, 10, 100, 1000])
    (y * w).sum().backward()
    # Which value stayed where is read off an array of positions.
    origin = np.full(4, -1)
    origin[index] = np.arange(count) if count else 0
    same(x.grad, np.where(origin < 0, w, 0))
    got = np.array([w[origin == k].sum() for k in range(count or 1)])
    same(values.grad, got if count else got[0])


def test_a_write_through_a_view_reaches_base_and_other_views():
    x = leaf([1, 2, 3])
    y = x * 1.0
    other = y[:2]
    v = y[1:]
    v *= 3
    same(y, [1, 6, 9])
    same(other, [1, 6])
    (other * other).sum().backward(retain_graph=True)
    same(x.grad, [2, 36, 0])
    x.grad = None
    (y * y).sum().backward()
    same(x.grad, [2, 36, 54])


def test_a_write_to_the_base_renews_its_views():
    x = leaf([1, 2, 3])
    y = x * 1.0
    v = y[1:]
    y *= 2
    (v * v).sum().backward()
    same(x.grad, [0, 16, 24])


def test_a_write_through_a_view_of_a_view():
    x = leaf(np.arange(6.0).reshape(2, 3) + 1)
    y = x * 1.0
    y.T[1:][0].__imul__(ng.tensor([10.0, 100.0]))
    (y * y).sum().backward()
    factor = np.array([[1, 10, 1], [1, 100, 1.0]])
    same(x.grad, 2 * np.asarray(x.detach()) * factor**2)


def test_constants_become_part_of_the_graph_when_written_into():
    buffer = ng.zeros(4)
    view = buffer[1:3]
    x = leaf([2, 3])
    view.copy_(x * x)
    assert buffer.requires_grad and view.requires_grad and not buffer.is_leaf
    (buffer * np.arange(4.0)).sum().backward()
    same(x.grad, [4, 12])


def test_copying_a_leaf_sends_the_gradient_there():
    x = leaf([2, 3])
    buffer = ng.zeros(2)
    buffer.copy_(x)
    (buffer * 4).sum().backward()
    same(x.grad, [4, 4])
    assert buffer.grad is None and not buffer.is_leaf


def test_filling_a_loop_buffer():
    x = leaf(2.0)
    powers = ng.zeros(5)
    powers[0] = 1.0
    for i in range(1, 5):
        powers[i] = powers[i - 1] * x
    same(powers, [1, 2, 4, 8, 16])


def test_fill_zero_and_clamp():
    x = leaf([1.0, -2.0, 3.0])
    y = x * 1.0
    y.clamp_(-1.0, 2.0)
    same(y, [1, -1, 2])
    y.sum().backward()
    same(x.grad, [1, 0, 0])
    z = x * 1.0
    z.zero_()
    assert not z.requires_grad
    same(z, [0, 0, 0])
    z.fill_(3.5)
    same(z, [3.5, 3.5, 3.5])


def test_retained_gradient_moves_with_the_write():
    x = leaf([1, 2])
    y = x * 2
    y.retain_grad()
    y += 1
    (y * y).sum().backward()
    same(y.grad, [6, 10])


def test_second_derivative_through_a_write():
    x = leaf([1.0, 2.0, 3.0])
    y = x * x
    y[1:] *= x[1:]
    (g,) = ng.autograd.grad(y.sum(), x, create_graph=True)
    same(g, [2, 12, 27])
    (h,) = ng.autograd.grad(g.sum(), x)
    same(h, [2, 12, 18])


def test_ndarray_augmented_with_a_tensor_becomes_a_tensor():
    a = np.ones(2)
    x = leaf([1, 2])
    a += x
    assert isinstance(a, ng.Tensor)
    a.sum().backward()
    same(x.grad, [1, 1])
