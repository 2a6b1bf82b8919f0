"""One small object of a store that is another one after every change to its models: who follows them asks for this alone.

    models/@generation.json    a random text, written anew after a version is published or deleted, or a label moved

It is not signed and says nothing of any model: it tells readers when to look, and what they find there they verify. Each writer puts a
text that was never there before, so of two at once nothing is lost. Readers cannot rely on it alone: who writes the store may be of an
older version, end between a change and this, or not be allowed to write it, so they look once in a while all the same.
"""

from __future__ import annotations

import logging
import secrets

from shared_ir.artifact.published import SCHEMA
from shared_ir.digest import canonical_json
from shared_ir.errors import IngotError
from shared_ir.storage.protocol import ObjectStore

GENERATION = "models/@generation.json"
"""No model can have this name."""
_LOG = logging.getLogger(__name__)


def tell_readers(store: ObjectStore) -> None:
    """That something of the models in ``store`` has changed. It has, so what fails here is no failure of it: readers learn of it later."""
    try:
        store.put(GENERATION, canonical_json({"schema": SCHEMA, "generation": secrets.token_hex(16)}))
    except IngotError as error:
        _LOG.warning("readers of the store learn of a change later, since they cannot be told: %s", error)


def generation(store: ObjectStore) -> str:
    """Another text after each change; empty where no writer of the store says so. Raises IngotError UNAVAILABLE."""
    found = store.identity(GENERATION)
    return "" if found is None else found.tag
