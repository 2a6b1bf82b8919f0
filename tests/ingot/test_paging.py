"""Lists of which a caller asks for some."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ingot.paging import paged
from shared_ir.errors import ErrorCode, IngotError


def pages(token: str, size: int) -> Any:
    start = int(token or 0)
    items = list(range(start, min(start + size, 7)))
    return SimpleNamespace(items=items, next_page_token=str(start + size) if start + size < 7 else "")


@pytest.mark.parametrize("limit", [None, 0, 3, 7, 9])
def test_as_many_as_are_wanted(limit: int | None) -> None:
    assert list(paged(pages, "items", limit)) == list(range(7))[:limit]


@pytest.mark.parametrize("limit", [-1, "x", 1.5])
def test_what_is_no_number_of_items_is_said(limit: Any) -> None:
    with pytest.raises(IngotError, match="not a number of items") as caught:
        list(paged(pages, "items", limit))
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, "limit")
