"""Target ``onnx``: a graph of standard operators, and the way back from one."""
