"""The compiler and the service around it. The whole compiler is one function, in pipeline.py."""
