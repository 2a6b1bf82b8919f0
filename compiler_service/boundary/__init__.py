"""The boundary around a process that reads foreign models. See docs/design/boundary.md."""
