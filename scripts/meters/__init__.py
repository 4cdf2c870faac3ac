# SPDX-License-Identifier: Apache-2.0
"""What argus and nDPI say of the flows of a capture, beside the standard meter."""
