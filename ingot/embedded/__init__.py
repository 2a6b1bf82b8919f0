"""All services on one machine: what `ingot up` starts, keeps and takes down."""
