"""Copies of the indexes of versions, fifty in an object, so that a page of versions is read by a request or two.

A copy proves itself like the blob that it is a copy of: it is signed, and says which version of which model it is. Nothing depends on
bundles: a version that is in none is read by itself, and one that has gone is not shown.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared_ir.artifact.oci import MEDIA_INDEX, Descriptor
from shared_ir.artifact.proof import StoreReader
from shared_ir.artifact.published import SCHEMA, Version, bundle_path
from shared_ir.artifact.signed import MAX_DOCUMENT_BYTES, is_string_map, parse_document
from shared_ir.digest import canonical_json
from shared_ir.errors import ErrorCode, IngotError

SIZE = 50
"""Versions of one bundle."""
_MOST_COPY_BYTES = 32 * 1024
"""Larger indexes, of dozens of targets, are read by themselves."""
_MOST_ATTEMPTS = 20
_LOG = logging.getLogger(__name__)


def first_of(number: int) -> int:
    """The first version of the bundle that ``number`` belongs to."""
    return (number - 1) // SIZE * SIZE + 1


@dataclass(frozen=True)
class Bundles:
    proven: StoreReader

    def copies(self, name: str, first: int) -> Mapping[str, str]:
        """Indexes as text by version number."""
        return _copies(self._document(name, first)[0])

    def version(self, name: str, number: int, copies: Mapping[str, str]) -> Version | None:
        """The version that a copy proves; None when none does."""
        data = copies.get(str(number), "").encode(errors="replace")
        if not data:
            return None
        try:
            return self.proven.version_of(name, number, Descriptor.of(MEDIA_INDEX, data), data)
        except IngotError as error:
            _LOG.warning("the copy of version %d of model %r is not taken: %s", number, name, error)
            return None

    def change(self, name: str, changes: Mapping[int, bytes | None]) -> None:
        """Put copies in, or take them out (None). Whoever else changes a bundle at the same time keeps his changes."""
        for first in sorted({first_of(number) for number in changes}):
            own = {
                str(n): data
                for n, data in changes.items()
                if first_of(n) == first and len(data or b"") <= _MOST_COPY_BYTES
            }
            if not any(self._changed(name, first, own) for _ in range(_MOST_ATTEMPTS)):
                _LOG.warning("bundle %d of model %r is left as it is: others change it all the time", first, name)

    def _changed(self, name: str, first: int, changes: Mapping[str, bytes | None]) -> bool:
        document, tag = self._document(name, first)
        before = _copies(document)
        after = {n: text for n, text in before.items() if n not in changes}
        after |= {n: data.decode() for n, data in changes.items() if data is not None}
        if after == before:
            return True
        store, path = self.proven.store, bundle_path(name, first)
        data = canonical_json(document | {"schema": SCHEMA, "versions": after})
        if len(data) > MAX_DOCUMENT_BYTES:
            return True
        return store.replace(path, data, tag) if tag else store.put_if_absent(path, data)

    def _document(self, name: str, first: int) -> tuple[dict[str, Any], str]:
        """One that somebody spoiled is empty."""
        try:
            data, tag = self.proven.store.get_tagged(bundle_path(name, first), MAX_DOCUMENT_BYTES)
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            return {}, ""
        try:
            return parse_document(data, "a bundle of versions"), tag
        except IngotError:
            return {}, tag


def _copies(document: Mapping[str, Any]) -> Mapping[str, str]:
    found = document.get("versions")
    return dict(found) if isinstance(found, dict) and is_string_map(found) else {}
