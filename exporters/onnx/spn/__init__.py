"""Sum-product networks as ONNX graphs of integer operators."""
