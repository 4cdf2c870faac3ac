# SPDX-License-Identifier: Apache-2.0
"""What a model is worth elsewhere: at another base rate, at another site, on other traffic.

Evaluations of the group ``n3ic.evaluations``. May import the core, the families and
``systems/xdp``, whose measure of drift it uses.
"""
