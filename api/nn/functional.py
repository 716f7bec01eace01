"""Layers, activations and losses as functions, as torch.nn.functional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from numbagrad import ops
from numbagrad.engine.tensor import Tensor
from numbagrad.ops.convolution import avg_pool, convolution, max_pool
from numbagrad.ops.operands import as_tensor

_REDUCTIONS = ("mean", "sum", "none")


# ----- Layers -----


def linear(input: Any, weight: Any, bias: Any = None) -> Tensor:
    """``input @ weight.T + bias``.

    Examples
    --------
    >>> import numpy as np, numbagrad as ng
    >>> ng.nn.functional.linear(np.ones((2, 3)), np.ones((4, 3))).shape
    (2, 4)
    """
    out = ops.matmul(as_tensor(input), as_tensor(weight).T)
    return out if bias is None else out + bias


def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Tensor:
    """``input1 @ weight[k] @ input2`` for every k, plus bias."""
    out = ops.einsum("...i,kij,...j->...k", as_tensor(input1), weight, as_tensor(input2))
    return out if bias is None else out + bias


def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Tensor:
    """The rows of `weight` that `input` names; that of `padding_idx` gets no gradient."""
    rows = np.asarray(input._data if isinstance(input, Tensor) else input)
    if rows.dtype.kind not in "iu":
        raise TypeError(f"embedding takes integers, got {rows.dtype}")
    weight = as_tensor(weight)
    if rows.size and not (rows.min() >= 0 and rows.max() < weight.shape[0]):
        raise IndexError(f"embedding: index out of range, rows are 0 to {weight.shape[0] - 1}")
    out = weight[rows]
    if padding_idx is None:
        return out
    return ops.where((rows == padding_idx)[..., None], out.detach(), out)


def dropout(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Zeros at random with probability p, and the rest divided by 1 - p; NumPy's global generator draws."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    x = as_tensor(input)
    if not training or p == 0:
        return x
    kept = np.random.random_sample(x.shape) >= p  # noqa: NPY002 - whose state checkpoint keeps
    scale = np.asarray(0.0 if p == 1 else 1 / (1 - p), x.dtype)
    return x * (kept * scale)


def layer_norm(
    input: Any, normalized_shape: int | Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    """Mean 0 and variance 1 over the last axes, times weight, plus bias (Ba et al., arXiv:1607.06450)."""
    x = as_tensor(input)
    shape = _shape(normalized_shape)
    if x.shape[x.ndim - len(shape) :] != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*, {list(shape)}], got {x.shape}"
        )
    return _affine(_normalized(x, tuple(range(-len(shape), 0)), eps), weight, bias)


def rms_norm(input: Any, normalized_shape: int | Sequence[int], weight: Any = None, eps: float | None = None) -> Tensor:
    """Divided by the root mean square over the last axes, times weight (arXiv:1910.07467)."""
    x = as_tensor(input)
    axes = tuple(range(-len(_shape(normalized_shape)), 0))
    eps = float(np.finfo(x.dtype).eps) if eps is None else eps
    return _affine(x / ops.sqrt(ops.mean(ops.square(x), axis=axes, keepdims=True) + eps), weight, None)


def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Mean 0 and variance 1 over groups of channels (arXiv:1803.08494)."""
    x = as_tensor(input)
    n, channels = x.shape[:2]
    if channels % num_groups:
        raise ValueError(f"{channels} channels cannot be divided into {num_groups} groups")
    grouped = ops.reshape(x, (n, num_groups, -1))
    out = ops.reshape(_normalized(grouped, (-1,), eps), x.shape)
    return _affine(out, *(None if v is None else _by_channel(v, x.ndim) for v in (weight, bias)))


def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 per channel over the batch, or by what was seen (arXiv:1502.03167)."""
    x = as_tensor(input)
    axes = (0, *range(2, x.ndim))
    if not training and running_mean is not None:
        mean, variance = (_by_channel(v, x.ndim) for v in (running_mean, running_var))
    else:
        count = x.size // x.shape[1] if x.size else 0
        if count <= 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {x.shape}")
        mean = ops.mean(x, axis=axes, keepdims=True)
        variance = ops.var(x, axis=axes, keepdims=True)
        if running_mean is not None:
            _follow(running_mean, mean, momentum, 1.0)
            _follow(running_var, variance, momentum, count / (count - 1))
    out = (x - mean) / ops.sqrt(variance + eps)
    return _affine(out, *(None if v is None else _by_channel(v, x.ndim) for v in (weight, bias)))


def _follow(running: Tensor, seen: Tensor, momentum: float, scale: float) -> None:
    running._data[...] = (1 - momentum) * running._data + momentum * scale * seen._data.reshape(-1)


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _normalized(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    mean = ops.mean(x, axis=axes, keepdims=True)
    variance = ops.var(x, axis=axes, keepdims=True)
    return (x - mean) / ops.sqrt(variance + eps)


def _affine(x: Tensor, weight: Any, bias: Any) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _by_channel(value: Any, ndim: int) -> Tensor:
    return ops.reshape(as_tensor(value), (-1, *[1] * (ndim - 2)))


# ----- Over space -----


def _batched(input: Any, axes: int, run: Any) -> Tensor:
    """`run` on (batch, channels, *space), where (channels, *space) is one of a batch."""
    x = as_tensor(input)
    if x.ndim == axes + 1:
        return run(x[None])[0]
    if x.ndim != axes + 2:
        raise ValueError(
            f"Expected {axes + 1}D (unbatched) or {axes + 2}D (batched) input, but got input of shape {x.shape}"
        )
    return run(x)


def _convolve(axes: int, input: Any, weight: Any, bias: Any, settings: tuple[Any, ...]) -> Tensor:
    out = _batched(input, axes, lambda x: convolution(x, weight, *settings))
    return out if bias is None else out + as_tensor(bias).reshape((-1,) + (1,) * axes)  # type: ignore[attr-defined]


def conv1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """Cross-correlation over the last axis."""
    return _convolve(1, input, weight, bias, (stride, padding, dilation, groups))


def conv2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """Cross-correlation over the last two axes."""
    return _convolve(2, input, weight, bias, (stride, padding, dilation, groups))


def conv3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """Cross-correlation over the last three axes."""
    return _convolve(3, input, weight, bias, (stride, padding, dilation, groups))


def max_pool1d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1) -> Tensor:
    """The largest number of each window over the last axis."""
    return _batched(input, 1, lambda x: max_pool(x, 1, kernel_size, stride, padding, dilation))


def max_pool2d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1) -> Tensor:
    """The largest number of each window over the last two axes."""
    return _batched(input, 2, lambda x: max_pool(x, 2, kernel_size, stride, padding, dilation))


def max_pool3d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1) -> Tensor:
    """The largest number of each window over the last three axes."""
    return _batched(input, 3, lambda x: max_pool(x, 3, kernel_size, stride, padding, dilation))


def avg_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, *, count_include_pad: bool = True
) -> Tensor:
    """The average of each window over the last axis."""
    return _batched(input, 1, lambda x: avg_pool(x, 1, kernel_size, stride, padding, count_include_pad))


def avg_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, *, count_include_pad: bool = True
) -> Tensor:
    """The average of each window over the last two axes."""
    return _batched(input, 2, lambda x: avg_pool(x, 2, kernel_size, stride, padding, count_include_pad))


def avg_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, *, count_include_pad: bool = True
) -> Tensor:
    """The average of each window over the last three axes."""
    return _batched(input, 3, lambda x: avg_pool(x, 3, kernel_size, stride, padding, count_include_pad))


# ----- Activations -----


def relu(input: Any) -> Tensor:
    """max(x, 0)."""
    return ops.relu(input)


def relu6(input: Any) -> Tensor:
    """min(max(x, 0), 6)."""
    return hardtanh(input, 0.0, 6.0)


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x, but not beyond two bounds, where its derivative is 0."""
    x = as_tensor(input)
    return ops.where((x > min_val) & (x < max_val), x, ops.clip(x.detach(), min_val, max_val))


def leaky_relu(input: Any, negative_slope: float = 0.01) -> Tensor:
    """x where positive, else negative_slope x."""
    x = as_tensor(input)
    return ops.where(x > 0, x, x * negative_slope)


def prelu(input: Any, weight: Any) -> Tensor:
    """x where positive, else weight x, by channel."""
    x, weight = as_tensor(input), as_tensor(weight)
    slope = _by_channel(weight, x.ndim) if weight.size > 1 and x.ndim > 2 else weight
    return ops.where(x > 0, x, x * slope)


def elu(input: Any, alpha: float = 1.0) -> Tensor:
    """x where positive, else alpha (exp(x) - 1)."""
    x = as_tensor(input)
    return ops.where(x > 0, x, alpha * ops.expm1(x))


def selu(input: Any) -> Tensor:
    """elu scaled so that mean and variance stay (arXiv:1706.02515)."""
    return 1.0507009873554804934193349852946 * elu(input, 1.6732632423543772848170429916717)


def gelu(input: Any, approximate: str = "none") -> Tensor:
    """x times the normal distribution function, or its approximation by tanh."""
    if approximate == "none":
        return ops.gelu(input)
    if approximate != "tanh":
        raise RuntimeError(f"approximate argument must be either none or tanh, got {approximate!r}")
    x = as_tensor(input)
    return 0.5 * x * (1 + ops.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def silu(input: Any) -> Tensor:
    """x sigmoid(x)."""
    return ops.silu(input)


def mish(input: Any) -> Tensor:
    """x tanh(softplus(x))."""
    x = as_tensor(input)
    return x * ops.tanh(ops.softplus(x))


def sigmoid(input: Any) -> Tensor:
    """1 / (1 + exp(-x))."""
    return ops.sigmoid(input)


def logsigmoid(input: Any) -> Tensor:
    """log(sigmoid(x))."""
    return ops.log_sigmoid(input)


def tanh(input: Any) -> Tensor:
    """Hyperbolic tangent."""
    return ops.tanh(input)


def softplus(input: Any, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself where beta x is beyond the threshold."""
    x = as_tensor(input)
    return ops.where(x * beta > threshold, x, ops.softplus(x * beta) / beta)


def softsign(input: Any) -> Tensor:
    """x / (1 + |x|)."""
    x = as_tensor(input)
    return x / (1 + abs(x))


def softmax(input: Any, dim: int = -1) -> Tensor:
    """Shares of exponentials along an axis."""
    return ops.softmax(input, axis=dim)


def log_softmax(input: Any, dim: int = -1) -> Tensor:
    """Logarithm of softmax."""
    return ops.log_softmax(input, axis=dim)


def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Divided by the p-norm along an axis."""
    from numbagrad.ops import linalg

    x = as_tensor(input)
    return x / ops.maximum(linalg.norm(x, p, dim, keepdims=True), eps)


def one_hot(input: Any, num_classes: int = -1) -> Tensor:
    """Rows of the identity."""
    classes = np.asarray(input._data if isinstance(input, Tensor) else input)
    count = int(classes.max()) + 1 if num_classes == -1 else num_classes
    return as_tensor(np.eye(count, dtype=np.int64)[classes])


# ----- Losses -----


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{reduction!r} is not a valid value for reduction, only {', '.join(_REDUCTIONS)}")
    return loss if reduction == "none" else ops.mean(loss) if reduction == "mean" else ops.sum(loss)


def mse_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """Squared differences."""
    return _reduced(ops.square(as_tensor(input) - target), reduction)


def l1_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """Absolute differences."""
    return _reduced(abs(as_tensor(input) - target), reduction)


def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Half the square up to delta, from there on linear."""
    size = abs(as_tensor(input) - target)
    return _reduced(ops.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta)), reduction)


def smooth_l1_loss(input: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Huber's loss divided by beta."""
    if beta < 0:
        raise ValueError("smooth_l1_loss does not support negative values for beta")
    return l1_loss(input, target, reduction) if beta == 0 else huber_loss(input, target, reduction, beta) / beta


def binary_cross_entropy(input: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Tensor:
    """Cross entropy of probabilities; logarithms are not below -100."""
    p, t = as_tensor(input), as_tensor(target)
    logs = (ops.maximum(ops.log(p), -100.0), ops.maximum(ops.log1p(-p), -100.0))
    loss = -(t * logs[0] + (1 - t) * logs[1])
    return _reduced(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None
) -> Tensor:
    """Cross entropy of sigmoid(input)."""
    x, t = as_tensor(input), as_tensor(target)
    if pos_weight is None:
        loss = ops.softplus(x) - t * x
    else:
        loss = (1 - t) * x + (1 + (as_tensor(pos_weight) - 1) * t) * ops.softplus(-x)
    return _reduced(loss if weight is None else loss * weight, reduction)


def nll_loss(input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> Tensor:
    """Minus the log-probability of the target class; classes are on axis 1."""
    x = as_tensor(input)
    classes = np.asarray(target._data if isinstance(target, Tensor) else target)
    axis = 1 if x.ndim > 1 else 0
    if classes.dtype.kind not in "iu" or classes.shape != x.shape[:axis] + x.shape[axis + 1 :]:
        raise ValueError(
            f"nll_loss wants integer classes of shape {x.shape[:axis] + x.shape[axis + 1 :]} for an input of shape "
            f"{x.shape}, got {classes.dtype} of shape {classes.shape}"
        )
    counted = classes != ignore_index
    bad = counted & ((classes < 0) | (classes >= x.shape[axis]))
    if bad.any():
        raise IndexError(f"Target {classes[bad].flat[0]} is out of bounds: there are {x.shape[axis]} classes")
    safe = np.where(counted, classes, 0)
    found = -ops.squeeze(ops.take_along_axis(x, np.expand_dims(safe, axis), axis), axis)
    return _weighted(found, safe, counted, weight, reduction)


def _weighted(loss: Tensor, classes: np.ndarray, counted: np.ndarray, weight: Any, reduction: str) -> Tensor:
    """The loss by class weights, of the items that count; its mean is over their weights."""
    if weight is None and counted.all():
        return _reduced(loss, reduction)
    by_class = np.ones(1) if weight is None else np.asarray(as_tensor(weight)._data)
    shares = np.where(counted, by_class[classes] if weight is not None else 1.0, 0.0).astype(loss.dtype)
    loss = loss * shares
    return ops.sum(loss) / shares.sum(dtype=loss.dtype) if reduction == "mean" else _reduced(loss, reduction)


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of softmax(input) against classes, or against probabilities of the input's shape.

    Examples
    --------
    >>> import numpy as np, numbagrad as ng
    >>> round(ng.nn.functional.cross_entropy(np.zeros((2, 4)), np.array([0, 3])).item(), 4)
    1.3863
    """
    x = as_tensor(input)
    axis = 1 if x.ndim > 1 else 0
    logs = ops.log_softmax(x, axis=axis)
    t = as_tensor(target)
    if t.dtype.kind == "f":
        return _against_probabilities(logs, t, axis, weight, reduction, label_smoothing)
    loss = nll_loss(logs, target, weight, ignore_index, reduction)
    if label_smoothing == 0:
        return loss
    return (1 - label_smoothing) * loss + label_smoothing * _smooth(
        logs, t._data, axis, weight, ignore_index, reduction
    )


def _smooth(logs: Tensor, classes: np.ndarray, axis: int, weight: Any, ignore_index: int, reduction: str) -> Tensor:
    """The loss against all classes alike."""
    weighted = logs if weight is None else logs * _by_channel(weight, max(logs.ndim, 2))
    counted = classes != ignore_index
    loss = ops.where(counted, -ops.mean(weighted, axis=axis), 0.0)
    if reduction != "mean":
        return _reduced(loss, reduction)
    by_class = np.ones(logs.shape[axis]) if weight is None else as_tensor(weight)._data
    return ops.sum(loss) / np.where(counted, by_class[np.where(counted, classes, 0)], 0.0).sum()


def _against_probabilities(
    logs: Tensor, target: Tensor, axis: int, weight: Any, reduction: str, label_smoothing: float
) -> Tensor:
    if target.shape != logs.shape:
        raise ValueError(f"cross_entropy wants probabilities of the input's shape {logs.shape}, got {target.shape}")
    classes = logs.shape[axis]
    target = target * (1 - label_smoothing) + label_smoothing / classes if label_smoothing else target
    weighted = logs if weight is None else logs * _by_channel(weight, max(logs.ndim, 2))
    loss = -ops.sum(target * weighted, axis=axis)
    return ops.sum(loss) / max(loss.size, 1) if reduction == "mean" else _reduced(loss, reduction)


def kl_div(input: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Divergence of a target from log-probabilities; "batchmean" divides the sum by the first axis."""
    x, t = as_tensor(input), as_tensor(target)
    loss = ops.exp(t) * (t - x) if log_target else ops.where(t > 0, t * ops.log(t), 0.0) - t * x
    return ops.sum(loss) / x.shape[0] if reduction == "batchmean" else _reduced(loss, reduction)
