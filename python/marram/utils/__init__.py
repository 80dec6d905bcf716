# SPDX-License-Identifier: Apache-2.0
"""Helpers around the core: checking gradients."""

from .check import check_grad

__all__ = ["check_grad"]
