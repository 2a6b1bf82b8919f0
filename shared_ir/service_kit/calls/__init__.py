"""Calls of both services: the threads that they have, their streams, and who answers them."""
