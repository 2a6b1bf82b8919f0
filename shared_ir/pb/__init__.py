"""Generated protobuf stubs (``make proto``). Imported only at the rim: ``api`` packages, ``service_kit``, the client."""
