"""What both services read: types, symbolic dims, graph IR, Target, plan, artifact, store, errors."""
