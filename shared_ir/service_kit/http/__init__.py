"""HTTP of both services, whatever carries it: messages as values, who may be addressed, metrics."""
