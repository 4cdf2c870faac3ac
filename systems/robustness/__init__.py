# SPDX-License-Identifier: Apache-2.0
"""How well a model does elsewhere: at another base rate, at another site, on other traffic.

The evaluations are found through the entry-point group ``n3ic.evaluations``. May import the core,
the families and the exporters.
"""
