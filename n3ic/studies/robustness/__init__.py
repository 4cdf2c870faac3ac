# SPDX-License-Identifier: Apache-2.0
"""How well a model does at another site: on shifted rows, and on the flows of other networks."""
