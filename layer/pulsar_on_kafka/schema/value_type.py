"""Type variables of what a schema encodes, a record's field holds, and a message, consumer or reader has as its value.

Type checkers take Any where a user writes `Consumer` without the type of its values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import TypeVar

    V = TypeVar("V", default=Any, covariant=True)
    FieldV = TypeVar("FieldV", default=Any)
else:
    from typing import TypeVar

    V = TypeVar("V", covariant=True)
    FieldV = TypeVar("FieldV")
