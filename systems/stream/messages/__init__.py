# SPDX-License-Identifier: Apache-2.0
"""Data that arrives in many packets: messages over UDP, gathered into a model's tensors.

Three ways lead from packet buffers to the device: a copy a packet, a gather by the CPU with one
copy a batch, and a pull by the device. Source: Dhakal and Ramakrishnan, "NetML: An NFV Platform
with Efficient Support for Machine Learning Applications".
"""
