"""The subcommands of `ingot`, a module each; a module registers its parsers and runs what they read."""
