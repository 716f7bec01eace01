"""PyTorch's `torch.autograd.anomaly_mode`: who made the first value or gradient that is not finite."""

from numbagrad.engine.anomaly import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]
