"""One module per engine that is measured; each runs in a process of its own (:mod:`bench.worker`)."""
