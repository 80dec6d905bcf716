# SPDX-License-Identifier: Apache-2.0
"""Helpers around the core: checking gradients and compiled functions."""

from .check import check_compile, check_grad, check_shapeless

__all__ = ["check_compile", "check_grad", "check_shapeless"]
