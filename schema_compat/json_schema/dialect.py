"""The drafts of JSON Schema differ in what a keyword means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_DRAFT: Final = re.compile(r"draft[-/](?:0?([3467])|(2019)-09|(2020)-12)\b")
_SINCE: Final = {
    "const": 6, "contains": 6, "propertyNames": 6, "if": 7, "then": 7, "else": 7,
    "dependentRequired": 2019, "dependentSchemas": 2019, "minContains": 2019, "maxContains": 2019,
    "unevaluatedProperties": 2019, "unevaluatedItems": 2019, "$anchor": 2019, "$recursiveRef": 2019,
    "prefixItems": 2020, "$dynamicRef": 2020,
}  # fmt: skip
_UNTIL: Final = {"additionalItems": 2019, "$recursiveRef": 2019}


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect is a draft: 3, 4, 6, 7, 2019 (-09) or 2020 (-12).

    A document that names no draft is read as draft-07, but keywords that only later drafts know count: who writes them
    means them.
    """

    draft: int
    named: bool = True

    @classmethod
    def of(cls, document: object, *, legacy: bool = False) -> Dialect:
        """The dialect that `$schema` names; draft 3 for the legacy form, that of Jackson."""
        if legacy:
            return cls(3)
        named = document.get("$schema") if isinstance(document, dict) else None
        match = _DRAFT.search(named) if isinstance(named, str) else None
        return cls(int(next(filter(None, match.groups())))) if match else cls(7, named=False)

    def knows(self, keyword: str) -> bool:
        """False for keywords that the draft ignores."""
        if not self.named:
            return True
        return _SINCE.get(keyword, 0) <= self.draft <= _UNTIL.get(keyword, 9999)

    def keywords(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Those that count in `schema`: beside `$ref`, until draft 7, nothing else does."""
        if "$ref" in schema and self.draft <= 7:
            return {"$ref": schema["$ref"]}
        return {keyword: value for keyword, value in schema.items() if self.knows(keyword)}

    @property
    def id_keyword(self) -> str:
        return "id" if self.draft <= 4 else "$id"
