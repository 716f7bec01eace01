"""PyTorch's `torch.autograd`: gradients over a recorded graph."""

from numbagrad.autograd import anomaly_mode as anomaly_mode
from numbagrad.autograd import forward_ad as forward_ad
from numbagrad.autograd import function as function
from numbagrad.autograd import functional as functional
from numbagrad.autograd import grad_mode as grad_mode
from numbagrad.autograd import graph as graph
from numbagrad.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from numbagrad.engine.anomaly import (
    detect_anomaly,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_detect_anomaly,
)
from numbagrad.engine.autograd import (
    Variable,
    backward,
    enable_grad,
    grad,
    no_grad,
    set_grad_enabled,
)
from numbagrad.engine.function import Function
from numbagrad.engine.inference import inference_mode, is_inference_mode_enabled
from numbagrad.engine.mode import is_grad_enabled, is_multithreading_enabled, set_multithreading_enabled
from numbagrad.ops.checkpoint import CheckpointError, checkpoint

__all__ = [
    "CheckpointError",
    "Function",
    "GradcheckError",
    "Variable",
    "backward",
    "checkpoint",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "is_multithreading_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]
