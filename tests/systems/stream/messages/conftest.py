# SPDX-License-Identifier: Apache-2.0
"""Tests of messages need PyTorch."""

import pytest

pytest.importorskip("torch")
