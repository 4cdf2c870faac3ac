"""Target ``qonnx``: a graph of XnorPopcountMatMul and MultiThreshold nodes."""
