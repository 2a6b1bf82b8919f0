"""Lists of the compiler service, page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from shared_ir.errors import ErrorCode, IngotError

PAGE_SIZE = 200
"""Items that a client asks for at once."""


def paged(
    ask: Callable[[str, int], Any], field: str, limit: int | None = None, backwards: bool = False
) -> Iterator[Any]:
    """The items in ``field`` of all pages, at most ``limit``; each page from its end where its order is ``backwards``.

    ``ask`` answers a page for its token and a size.

    Raises:
        IngotError: INVALID_ARGUMENT, ``limit`` is no number of items.
    """
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        expected = "a whole number, 0 or more, or None for all"
        message = "not a number of items"
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT, message, field="limit", expected=expected, received=str(limit)[:100]
        )
    token, left = "", limit
    while left is None or left > 0:
        page = ask(token, PAGE_SIZE if left is None else min(left, PAGE_SIZE))
        items = list(getattr(page, field))[:left] if not backwards else list(getattr(page, field))[::-1][:left]
        yield from items
        left = None if left is None else left - len(items)
        token = page.next_page_token
        if not token:
            return
