"""Operators of the domain com.microsoft, which exporters and the optimizer of ONNX Runtime write, as operators of ai.onnx."""
