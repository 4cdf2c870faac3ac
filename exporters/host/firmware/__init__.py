# SPDX-License-Identifier: Apache-2.0
"""``--style plain``: C99 for firmware, one header and one source, as :mod:`.writer` says."""
