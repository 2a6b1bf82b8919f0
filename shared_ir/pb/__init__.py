"""Generated protobuf stubs (``make proto``). Imported only at the rim: ``api`` packages and the client."""
