# SPDX-License-Identifier: Apache-2.0
"""Data that arrives in many packets: messages over UDP, gathered into a model's tensors.

There are three ways from packet buffers to the device: a copy per packet, a gather by the CPU with
one copy per batch, and a pull by the device. Source: Dhakal and Ramakrishnan, "NetML: An NFV
Platform with Efficient Support for Machine Learning Applications". May import the core and the
families.
"""
