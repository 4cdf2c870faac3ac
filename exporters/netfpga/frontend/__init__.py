# SPDX-License-Identifier: Apache-2.0
"""The front end: a network stack that takes inference messages to the executor and back."""
