"""Parts of a graph that other code generators take."""
