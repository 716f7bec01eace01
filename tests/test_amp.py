"""Mixed precision: what autocast casts, and what GradScaler does to gradients, scales and steps."""

import copy
import gc
import pickle
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import amp

ml_dtypes = pytest.importorskip("ml_dtypes")
HALF, BFLOAT16, SINGLE, DOUBLE = map(np.dtype, (np.float16, ml_dtypes.bfloat16, np.float32, np.float64))


def single(*shape, seed=0, requires_grad=False):
    data = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return ng.tensor(data, requires_grad=requires_grad)


class Descent:
    """The least that an optimizer is: what GradScaler may rely on."""

    def __init__(self, params, lr=0.1):
        self.param_groups = [{"params": list(params), "lr": lr}]
        self.steps = 0

    def step(self):
        self.steps += 1
        with ng.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p -= group["lr"] * p.grad
        return self.steps

    def zero_grad(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None


# ----- What is cast -----

SQUARE = single(4, 4).detach() + 4 * np.eye(4, dtype=np.float32)
LOW = {
    "matmul": lambda x: x @ x,
    "vector": lambda x: x @ x[0],
    "stacks": lambda x: ng.matmul(ng.stack([x, x]), x),
    "einsum": lambda x: ng.einsum("ij,kj->ik", x, x),
    "dot": lambda x: ng.dot(x, x),
}
IN_SINGLE = {
    "prod": ng.prod,
    "trace": ng.trace,
    "quantile": lambda x: ng.quantile(x, 0.3),
    "inv": ng.linalg.inv,
    "solve": lambda x: ng.linalg.solve(x, x),
    "cholesky": lambda x: ng.linalg.cholesky(x * 0 + np.eye(4, dtype=x.dtype)),
    "qr": lambda x: ng.linalg.qr(x)[1],
    "svd": lambda x: ng.linalg.svd(x)[1],
    "svdvals": ng.linalg.svdvals,
    "eigvalsh": ng.linalg.eigvalsh,
    "pinv": ng.linalg.pinv,
}
AS_IT_COMES = {
    "exp": ng.exp,
    "add": lambda x: x + 1,
    "power": lambda x: x**2,
    "sum": ng.sum,
    "mean": ng.mean,
    "softmax": ng.softmax,
    "log_softmax": ng.log_softmax,
    "reshape": lambda x: x.reshape(-1),
    "index": lambda x: x[0],
    "det": ng.linalg.det,
}


@pytest.mark.parametrize("dtype", [HALF, BFLOAT16], ids=str)
@pytest.mark.parametrize("given", [HALF, BFLOAT16, SINGLE, DOUBLE], ids=str)
def test_ops_run_in_the_dtype_of_their_list(given, dtype):
    x = SQUARE.astype(given)
    with amp.autocast("cpu", dtype=dtype):
        found = {name: op(x).dtype for ops in (LOW, IN_SINGLE, AS_IT_COMES) for name, op in ops.items()}
    kept = given == DOUBLE
    want = dict.fromkeys(LOW, DOUBLE if kept else dtype) | dict.fromkeys(IN_SINGLE, DOUBLE if kept else SINGLE)
    assert found == want | dict.fromkeys(AS_IT_COMES, given)
    assert {name: op(x).dtype for name, op in LOW.items()} == dict.fromkeys(LOW, given)


def test_what_is_mixed_becomes_the_widest():
    x, y, z = SQUARE.astype(HALF), SQUARE.astype(SINGLE), SQUARE.astype(BFLOAT16)
    with amp.autocast("cpu"):
        assert ng.stack([x, y]).dtype == ng.concatenate([x, y]).dtype == (x + y).dtype == SINGLE
        assert ng.stack([x, z]).dtype == (x * z).dtype == SINGLE
        assert ng.stack([x, x]).dtype == HALF
        assert ng.concatenate([x, SQUARE.astype(DOUBLE)]).dtype == DOUBLE


def test_integers_are_left_alone():
    x = ng.tensor(np.arange(4).reshape(2, 2))
    with amp.autocast("cpu"):
        assert (x @ x).dtype == x.dtype
        assert ng.prod(x).dtype == x.dtype


NAMES = ["matmul", "mm", "bmm", "prod", "trace", "exp", "sum", "softmax", "log_softmax", "stack", "cat", "add", "det"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtypes_are_pytorchs(name, given, dtype):
    torch = pytest.importorskip("torch")
    if name == "det" and given != "float32":
        pytest.skip("PyTorch has no determinant of 16 bits")
    if name in ("stack", "cat") and given not in ("float32", dtype):
        pytest.skip("PyTorch joins no other 16 bits than those of autocast")

    def run(x, lib):
        pair = [x, x]
        return {
            "matmul": lambda: x @ x,
            "mm": lambda: (lib.mm if lib is torch else lib.matmul)(x, x),
            "bmm": lambda: (lib.bmm if lib is torch else lib.matmul)(x[None], x[None]),
            "prod": lambda: lib.prod(x),
            "trace": lambda: lib.trace(x),
            "exp": lambda: lib.exp(x),
            "sum": lambda: lib.sum(x),
            "softmax": lambda: lib.softmax(x, -1),
            "log_softmax": lambda: lib.log_softmax(x, -1),
            "stack": lambda: lib.stack(pair),
            "cat": lambda: lib.concatenate([x, x.astype("float32")] if lib is ng else [x, x.float()]),
            "add": lambda: x + x,
            "det": lambda: lib.linalg.det(x),
        }[name]()

    with amp.autocast("cpu", dtype=dtype):
        got = run(SQUARE.astype(given), ng)
    with torch.amp.autocast("cpu", dtype=getattr(torch, dtype)):
        want = run(torch.tensor(SQUARE.numpy()).to(getattr(torch, given)), torch)
    assert str(want.dtype) == f"torch.{got.dtype}"
    np.testing.assert_allclose(got.astype(float), want.double().numpy(), rtol=0.03, atol=0.1)


# ----- Contexts -----


def test_contexts_nest_and_come_back():
    x = SQUARE
    with amp.autocast("cpu", dtype=HALF) as outer:
        assert (x @ x).dtype == HALF
        with amp.autocast("cpu", dtype=BFLOAT16):
            assert (x @ x).dtype == BFLOAT16
            with amp.autocast("cpu", enabled=False):
                assert (x @ x).dtype == SINGLE and not amp.is_autocast_enabled("cpu")
            with outer:
                assert (x @ x).dtype == HALF
        assert (x @ x).dtype == HALF
    assert (x @ x).dtype == SINGLE


def test_an_exception_ends_it():
    with pytest.raises(ZeroDivisionError), amp.autocast("cpu"):
        raise ZeroDivisionError
    assert (SQUARE @ SQUARE).dtype == SINGLE


def test_as_a_decorator():
    @amp.autocast("cpu", dtype=HALF)
    def gram(x, deep):
        """Product."""
        return gram(x, deep - 1) if deep else x @ x

    assert gram(SQUARE, 3).dtype == HALF and gram.__doc__ == "Product."
    assert (SQUARE @ SQUARE).dtype == SINGLE


def test_threads_have_their_own():
    seen = []
    with amp.autocast("cpu", dtype=HALF):
        thread = threading.Thread(target=lambda: seen.append((SQUARE @ SQUARE).dtype))
        thread.start()
        thread.join()
    assert seen == [SINGLE]


def test_what_is_set_can_be_asked():
    assert not amp.is_autocast_enabled("cpu") and amp.get_autocast_dtype("cpu") == BFLOAT16
    assert amp.is_autocast_available("cpu") and not amp.is_autocast_available("cuda")
    with amp.autocast("cpu", dtype=HALF, cache_enabled=False):
        assert amp.is_autocast_enabled("cpu") and amp.get_autocast_dtype("cpu") == HALF
        assert not amp.is_autocast_cache_enabled()


def test_wrong_devices_and_dtypes():
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'tpu'"):
        amp.autocast("tpu")
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        amp.autocast(0)
    with pytest.warns(UserWarning, match="CUDA is not available. Disabling"):
        assert not amp.autocast("cuda").enabled
    with pytest.warns(UserWarning, match="the target dtype is not supported"):
        context = amp.autocast("cpu", dtype=np.float64)
    with context:
        assert (SQUARE @ SQUARE).dtype == SINGLE


# ----- Gradients -----


def loss_of(x, w, v):
    return ((ng.tanh(x @ w) @ v) ** 2).mean()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_are_pytorchs(dtype):
    torch = pytest.importorskip("torch")
    data = [single(8, 5), single(5, 7, seed=1), single(7, 2, seed=2)]
    x, w, v = data[0], *(ng.tensor(d.numpy(), requires_grad=True) for d in data[1:])
    with amp.autocast("cpu", dtype=dtype):
        loss = loss_of(x, w, v)
    loss.backward()
    tx, tw, tv = (torch.tensor(d.numpy()) for d in data)
    tw.requires_grad_(), tv.requires_grad_()
    with torch.amp.autocast("cpu", dtype=getattr(torch, dtype)):
        want = ((torch.tanh(tx @ tw) @ tv) ** 2).mean()
    want.backward()
    assert w.grad.dtype == v.grad.dtype == SINGLE
    for got, wanted in ((loss.detach(), want.detach()), (w.grad, tw.grad), (v.grad, tv.grad)):
        wanted = wanted.float().numpy()
        eps = 2.0**-10 if dtype == "float16" else 2.0**-7
        np.testing.assert_allclose(got.astype(SINGLE), wanted, atol=4 * eps * np.abs(wanted).max())


def test_a_parameter_is_cast_once():
    w = single(4, 4, requires_grad=True)
    with amp.autocast("cpu", dtype=HALF):
        first, second = SQUARE @ w, SQUARE @ w
        casts = {id(node) for y in (first, second) for node, _ in y.grad_fn.next_functions if node is not None}
    assert len(casts) == 1
    with amp.autocast("cpu", dtype=HALF, cache_enabled=False):
        first, second = SQUARE @ w, SQUARE @ w
        casts = {id(node) for y in (first, second) for node, _ in y.grad_fn.next_functions if node is not None}
    assert len(casts) == 2


def test_a_cast_is_made_again_where_it_must_be():
    w = single(4, 4, requires_grad=True)
    with amp.autocast("cpu", dtype=HALF):
        with ng.no_grad():
            plain = SQUARE @ w
        assert not plain.requires_grad and (SQUARE @ w).requires_grad
        with amp.autocast("cpu", dtype=BFLOAT16):
            assert (SQUARE @ w).dtype == BFLOAT16
        before = np.asarray((SQUARE @ w).detach())
        with ng.no_grad():
            w += 1
        assert not np.array_equal((SQUARE @ w).detach(), before)
        w.data = np.zeros((4, 4), np.float32)
        assert not np.any((SQUARE @ w).detach())


def test_casts_that_are_kept_die_with_the_outermost_context():
    w = single(4, 4, requires_grad=True)
    with amp.autocast("cpu", dtype=HALF):
        with amp.autocast("cpu", dtype=HALF):
            first = (SQUARE @ w).grad_fn.next_functions[1][0]
        assert (SQUARE @ w).grad_fn.next_functions[1][0] is first
        amp.clear_autocast_cache()
        assert (SQUARE @ w).grad_fn.next_functions[1][0] is not first


def test_checkpoints_run_again_as_they_ran():
    x, w = single(3, 4), single(4, 4, requires_grad=True)
    with amp.autocast("cpu", dtype=HALF):
        loss = ng.checkpoint(lambda x: ng.tanh(x @ w).sum(), x)
    loss.backward()
    plain = ng.tensor(w.detach(), requires_grad=True)
    with amp.autocast("cpu", dtype=HALF):
        again = ng.tanh(x @ plain).sum()
    again.backward()
    np.testing.assert_array_equal(w.grad, plain.grad)


def test_second_derivatives():
    w = single(3, 3, requires_grad=True)
    with amp.autocast("cpu", dtype=BFLOAT16):
        y = (SQUARE[:3, :3] @ w).sum()
    (g,) = ng.autograd.grad((y.astype(SINGLE) ** 2), [w], create_graph=True)
    (h,) = ng.autograd.grad(g.sum(), [w])
    assert h.dtype == SINGLE
    columns = np.asarray(SQUARE[:3, :3].astype(BFLOAT16).astype(SINGLE)).sum(0)
    np.testing.assert_allclose(h, np.broadcast_to((2 * columns * columns.sum() * 3)[:, None], (3, 3)), rtol=0.05)


# ----- Custom Functions -----


def custom(cast_inputs=None):
    class Product(ng.autograd.Function):
        @staticmethod
        @amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs)
        def forward(ctx, x, y, extra):
            ctx.save_for_backward(x, y)
            Product.seen = x.dtype, extra["z"].dtype, amp.is_autocast_enabled()
            return x @ y

        @staticmethod
        @amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            Product.back = amp.is_autocast_enabled(), (SQUARE @ SQUARE).dtype
            return g @ y.T, x.T @ g, None

    return Product


def test_custom_functions_keep_the_autocast_of_their_forward():
    product, x, y = custom(), single(3, 3, requires_grad=True), single(3, 3, seed=1, requires_grad=True)
    with amp.autocast("cpu", dtype=HALF):
        out = product.apply(x, y, {"z": SQUARE})
    assert out.dtype == HALF and product.seen == (SINGLE, SINGLE, True)
    out.backward(np.ones((3, 3), HALF))
    assert product.back == (True, HALF) and x.grad.dtype == SINGLE
    out = product.apply(x, y, {"z": SQUARE})
    out.backward(np.ones((3, 3), SINGLE))
    assert product.back == (False, SINGLE)


def test_custom_functions_that_cast_their_inputs():
    product, x = custom(np.float32), single(3, 3, requires_grad=True)
    half = x.astype(HALF)
    with amp.autocast("cpu", dtype=HALF):
        out = product.apply(half, half, {"z": SQUARE.astype(HALF)})
    assert out.dtype == SINGLE and product.seen == (SINGLE, SINGLE, False)
    with amp.autocast("cpu", dtype=HALF):
        out.backward(np.ones((3, 3), SINGLE))
    assert product.back == (False, SINGLE) and x.grad.dtype == SINGLE
    # Without autocast nothing is cast.
    assert product.apply(half, half, {"z": SQUARE.astype(HALF)}).dtype == HALF


# ----- GradScaler -----


def scaled_step(scaler, optimizer, loss):
    optimizer.zero_grad()
    scaler.scale(loss()).backward()
    scaler.step(optimizer)
    scaler.update()


def test_a_step_is_that_without_scaling():
    w, plain = (single(3, 2, requires_grad=True) for _ in range(2))
    scaler = amp.GradScaler()
    scaled_step(scaler, Descent([w]), lambda: (w**2).sum())
    (plain**2).sum().backward()
    Descent([plain]).step()
    np.testing.assert_allclose(w.detach(), plain.detach(), rtol=1e-6)
    assert scaler.get_scale() == 2.0**16


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_gradients_that_are_not_finite_skip_the_step(bad):
    w = single(3, 2, requires_grad=True)
    before = np.array(w.detach())
    scaler, optimizer = amp.GradScaler(init_scale=8.0), Descent([w])
    scaled_step(scaler, optimizer, lambda: (w * np.float32(bad)).sum())
    assert optimizer.steps == 0 and scaler.get_scale() == 4.0
    np.testing.assert_array_equal(w.detach(), before)


def test_one_bad_number_in_many_is_found():
    w = ng.zeros(400_001, dtype=np.float32, requires_grad=True)
    for place in (0, 131_071, 131_072, 400_000):
        w.grad = ng.ones(400_001, dtype=np.float32)
        w.grad[place] = np.inf
        scaler, optimizer = amp.GradScaler(), Descent([w])
        scaler.scale(ng.tensor(1.0))
        assert scaler.step(optimizer) is None and optimizer.steps == 0


SCHEDULE = [False, False, True, False, False, False, False, True, True, False, False, False]


def test_growth_and_backoff_are_pytorchs():
    torch = pytest.importorskip("torch")
    settings = {"init_scale": 16.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 2}
    ours, theirs = amp.GradScaler("cpu", **settings), torch.amp.GradScaler("cpu", **settings)
    w, v = ng.tensor([1.0], requires_grad=True), torch.ones(1, requires_grad=True)
    optimizer, sgd = Descent([w]), torch.optim.SGD([v], 0.1)
    for overflow in SCHEDULE:
        factor = float("inf") if overflow else 2.0
        for scaler, p, opt in ((ours, w, optimizer), (theirs, v, sgd)):
            opt.zero_grad()
            scaler.scale((p * factor).sum()).backward()
            scaler.step(opt)
            scaler.update()
        assert ours.get_scale() == theirs.get_scale()
        assert ours.state_dict() == theirs.state_dict()
        np.testing.assert_allclose(w.detach(), v.detach(), atol=1e-6)


def test_the_scale_does_not_grow_beyond_float32():
    w = ng.tensor([1.0], requires_grad=True)
    scaler, optimizer = amp.GradScaler(init_scale=2.0**127, growth_interval=1), Descent([w])
    scaled_step(scaler, optimizer, lambda: (w * 1e-30).sum())
    assert scaler.get_scale() == 2.0**127


def test_unscaling_first_lets_gradients_be_clipped():
    w = single(3, 2, requires_grad=True)
    scaler, optimizer = amp.GradScaler(init_scale=64.0), Descent([w])
    scaler.scale((w * 3).sum()).backward()
    version = w.grad._version
    scaler.unscale_(optimizer)
    np.testing.assert_array_equal(w.grad, np.full((3, 2), 3, np.float32))
    assert w.grad._version > version
    with pytest.raises(RuntimeError, match="already been called on this optimizer since the last update"):
        scaler.unscale_(optimizer)
    before = np.array(w.detach())
    assert scaler.step(optimizer) == 1
    np.testing.assert_allclose(w.detach(), before - 0.3, rtol=1e-6)
    with pytest.raises(RuntimeError, match="step\\(\\) has already been called"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="being called after step"):
        scaler.unscale_(optimizer)
    scaler.update()


def test_several_optimizers_share_a_scale():
    w, v = (single(3, requires_grad=True, seed=i) for i in range(2))
    good, bad = Descent([w]), Descent([v])
    scaler = amp.GradScaler(init_scale=4.0)
    scaler.scale((w * 2).sum() + (v * np.float32(np.inf)).sum()).backward()
    scaler.step(good)
    scaler.step(bad)
    scaler.update()
    assert (good.steps, bad.steps, scaler.get_scale()) == (1, 0, 2.0)


def test_a_gradient_that_two_groups_name_is_unscaled_once():
    w = single(3, requires_grad=True)
    optimizer = Descent([w])
    optimizer.param_groups.append({"params": [w], "lr": 0.0})
    scaler = amp.GradScaler(init_scale=4.0)
    scaler.scale((w * 2).sum()).backward()
    scaler.unscale_(optimizer)
    np.testing.assert_array_equal(w.grad, np.full(3, 2, np.float32))


def test_wrong_order_and_wrong_arguments():
    w = single(3, requires_grad=True)
    scaler, optimizer = amp.GradScaler(), Descent([w])
    with pytest.raises(RuntimeError, match="No inf checks were recorded prior to update"):
        scaler.update()
    with pytest.raises(RuntimeError, match="No inf checks were recorded for this optimizer"):
        scaler.step(optimizer)
    scaler = amp.GradScaler()
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        scaler.step(optimizer, closure=lambda: None)
    with pytest.raises(ValueError, match="outputs must be a Tensor or an iterable"):
        scaler.scale(3)
    half = ng.ones(3, dtype=HALF, requires_grad=True)
    scaler.scale(half.sum().astype(SINGLE)).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(Descent([half]))
    for settings in ({"growth_factor": 1.0}, {"backoff_factor": 1.0}, {"device": "cuda"}):
        with pytest.raises(ValueError, match=r"must be|not available"):
            amp.GradScaler(**settings)


def test_scaling_containers():
    scaler = amp.GradScaler(init_scale=4.0)
    x = ng.tensor([1.0, 2.0])
    first, (second,) = scaler.scale([x, (x,)])
    assert first.tolist() == second.tolist() == [4.0, 8.0]
    assert [y.tolist() for y in scaler.scale(iter([x]))] == [[4.0, 8.0]]
    assert scaler.scale(x.astype(HALF)).dtype == HALF
    big = amp.GradScaler()
    assert float(big.scale(ng.tensor(0.5).astype(HALF))) == 2.0**15


def test_disabled_it_does_nothing():
    w = single(3, requires_grad=True)
    scaler, optimizer = amp.GradScaler(enabled=False), Descent([w])
    loss = (w * 2).sum()
    assert scaler.scale(loss) is loss and scaler.get_scale() == 1.0 and not scaler.is_enabled()
    loss.backward()
    scaler.unscale_(optimizer)
    assert scaler.step(optimizer) == 1
    scaler.update()
    assert scaler.state_dict() == {}
    scaler.load_state_dict({"anything": 1})


def test_states_are_kept_and_taken_over():
    w = single(3, requires_grad=True)
    scaler, optimizer = amp.GradScaler(init_scale=4.0, growth_interval=3), Descent([w])
    for _ in range(2):
        scaled_step(scaler, optimizer, lambda: (w * 2).sum())
    other = amp.GradScaler()
    other.load_state_dict(scaler.state_dict())
    for s in (scaler, other, pickle.loads(pickle.dumps(scaler)), copy.deepcopy(scaler)):
        scaled_step(s, Descent([w]), lambda: (w * 2).sum())
        assert s.get_scale() == 8.0
    with pytest.raises(RuntimeError, match="source state dict is empty"):
        scaler.load_state_dict({})
    with pytest.raises(KeyError):
        scaler.load_state_dict({"scale": 3.0})
    assert scaler.get_scale() == 8.0
    scaler.scale((w * 2).sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="may only be pickled"):
        pickle.dumps(scaler)
    scaler.update(2.0)
    assert scaler.get_scale() == 2.0
    scaler.update(ng.tensor([16.0]))
    assert scaler.get_scale() == 16.0
    with pytest.raises(ValueError, match="new_scale must be"):
        scaler.update(ng.tensor([1.0, 2.0]))


def test_factors_can_be_set():
    scaler = amp.GradScaler()
    scaler.set_growth_factor(4.0)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(7)
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (4.0, 0.25, 7)


@pytest.mark.parametrize("dtype", [HALF, BFLOAT16, SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("where", ["cpu", "reference"])
def test_unscaling_gives_the_products_and_finds_what_is_not_finite(dtype, where):
    from numbagrad.jit.unscale import unscale

    data = np.random.default_rng(0).normal(size=(300, 500)).astype(dtype)
    with ng.use_backend(where):
        for layout in (data.copy(), data.copy().T, data.copy()[::2, 1:]):
            want = (layout.astype(np.float64) * 0.125).astype(dtype)
            assert unscale(layout, 0.125)
            np.testing.assert_array_equal(layout, want)
            layout[-1, -1] = np.nan
            assert not unscale(layout, 0.5)


# ----- The recipe of a gradient penalty -----


def penalty_step(x, target, params, optimizer, scaler, dtype):
    optimizer.zero_grad()
    with amp.autocast("cpu", dtype=dtype):
        out = ng.tanh(x @ params[0] + params[1]) @ params[2]
        loss = ((out - target) ** 2).mean()
    scaled = ng.autograd.grad(scaler.scale(loss), params, create_graph=True)
    inverse = 1.0 / scaler.get_scale()
    grads = [g * inverse for g in scaled]
    with amp.autocast("cpu", dtype=dtype):
        norm = 0
        for g in grads:
            norm = norm + (g**2).sum()
        loss = loss + ng.sqrt(norm)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return float(loss.detach())


def torch_penalty_step(torch, x, target, params, optimizer, scaler, dtype):
    optimizer.zero_grad()
    with torch.amp.autocast("cpu", dtype=dtype):
        out = torch.tanh(x @ params[0] + params[1]) @ params[2]
        loss = ((out - target) ** 2).mean()
    scaled = torch.autograd.grad(scaler.scale(loss), params, create_graph=True)
    inverse = 1.0 / scaler.get_scale()
    grads = [g * inverse for g in scaled]
    with torch.amp.autocast("cpu", dtype=dtype):
        norm = 0
        for g in grads:
            norm = norm + (g**2).sum()
        loss = loss + norm.sqrt()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return float(loss.detach())


def problem():
    data = [single(s, t, seed=i).numpy() * 0.5 for i, (s, t) in enumerate([(16, 4), (16, 1), (4, 8), (1, 8), (8, 1)])]
    return data[:2], data[2:]


def test_a_gradient_penalty_trains_as_in_pytorch():
    torch = pytest.importorskip("torch")
    (x, target), start = problem()
    params = [ng.tensor(p, requires_grad=True) for p in start]
    theirs = [torch.tensor(p, requires_grad=True) for p in start]
    optimizer, scaler = Descent(params), amp.GradScaler()
    sgd, torch_scaler = torch.optim.SGD(theirs, 0.1), torch.amp.GradScaler("cpu")
    ours = [penalty_step(ng.tensor(x), ng.tensor(target), params, optimizer, scaler, HALF) for _ in range(25)]
    data = torch.tensor(x), torch.tensor(target)
    want = [torch_penalty_step(torch, *data, theirs, sgd, torch_scaler, torch.float16) for _ in range(25)]
    assert ours[-1] < 0.8 * ours[0]
    assert scaler.get_scale() == torch_scaler.get_scale()
    np.testing.assert_allclose(ours, want, rtol=0.02)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_gradient_penalty_holds_memory_flat():
    """200 steps with the garbage collector off."""
    (x, target), start = problem()
    params = [ng.tensor(p, requires_grad=True) for p in start]
    x, target = ng.tensor(np.tile(x, (500, 1))), ng.tensor(np.tile(target, (500, 1)))
    optimizer, scaler = Descent(params, lr=0.01), amp.GradScaler()

    def run(steps):
        for _ in range(steps):
            penalty_step(x, target, params, optimizer, scaler, HALF)

    gc.collect()
    gc.disable()
    try:
        run(20)
        objects, resident = len(gc.get_objects()), resident_bytes()
        run(200)
        assert len(gc.get_objects()) - objects < 50
        assert resident_bytes() - resident < 8e6
    finally:
        gc.enable()


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_optimizers_step_as_without_scaling(name):
    """A power of two as the scale changes no bit; an overflow leaves parameters and the optimizer's state alone."""
    w, plain = (single(3, 2, requires_grad=True) for _ in range(2))
    scaled, bare = (getattr(ng.optim, name)([p], lr=0.05) for p in (w, plain))
    scaler = amp.GradScaler(init_scale=2.0**10)
    for step in range(6):
        if step == 3:
            before = np.array(w.detach())
            scaled_step(scaler, scaled, lambda: (w * np.float32(np.inf)).sum())
            np.testing.assert_array_equal(w.detach(), before)
            continue
        scaled_step(scaler, scaled, lambda: (w**4).sum())
        bare.zero_grad()
        (plain**4).sum().backward()
        bare.step()
    np.testing.assert_array_equal(w.detach(), plain.detach())
    assert scaler.get_scale() == 2.0**9
