"""Fixtures of these tests."""

from both import lib

__all__ = ["lib"]
