# SPDX-License-Identifier: Apache-2.0
# The build sources this file; the box has no crossbar.
