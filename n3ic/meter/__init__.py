"""Metering: packets to flows, by one specification for training and for every data plane."""
