"""Saved values under the name that ops know; `numbagrad.engine.saved` has them."""

from numbagrad.engine.saved import check_saved, saved_output, versions_of

__all__ = ["check_saved", "saved_output", "versions_of"]
