"""Code generators for parts of models, beside the one of the target."""
