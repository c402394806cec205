"""A pointer says where in a schema something stands, by index: `/fields/3/type/items`; the schema as a whole is `/`.

The form of Avro's `SchemaCompatibility.Incompatibility.getLocation()`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class Pointer:
    """A pointer is one step further than `parent`: linked, so that deep schemas do not cost the square of their
    depth."""

    parent: Pointer | None
    step: str

    def to(self, *steps: str | int) -> Pointer:
        """Further down."""
        pointer = self
        for step in steps:
            pointer = Pointer(pointer, str(step))
        return pointer

    def __str__(self) -> str:
        steps: list[str] = []
        pointer: Pointer | None = self
        while pointer is not None and pointer.parent is not None:
            steps.append(pointer.step)
            pointer = pointer.parent
        return "/" + "/".join(reversed(steps))


ROOT = Pointer(None, "")
