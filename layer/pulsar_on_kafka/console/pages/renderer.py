"""The renderer makes pages from templates; all page modules share it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from pulsar_on_kafka.admin.overview.records import SubscriptionOverview
from pulsar_on_kafka.console.access import READER, ConsoleAccess
from pulsar_on_kafka.console.formatting import FILTERS, link
from pulsar_on_kafka.console.history import HEIGHT, SAMPLES
from pulsar_on_kafka.console.hole_map import COLUMNS
from pulsar_on_kafka.console.operations import Operations
from pulsar_on_kafka.console.operators import OperatorRights
from pulsar_on_kafka.console.response_cache import CachedResponse, Unanswered
from pulsar_on_kafka.console.view_model import GatheredOverview, Site

T = TypeVar("T")

_TEMPLATES: Final = Path(__file__).parent.parent / "templates"
_LATE_MS: Final = 60_000
"""An overview that is older is called so."""


class Problem(NamedTuple):
    """A question of a page without a new answer. `away`: the cluster did not answer; else it refused."""

    reason: str
    away: bool


class PageRenderer:
    """The templates, and the data and rights that every page needs. Thread-safe."""

    def __init__(self, site: Site, access: ConsoleAccess, rights: OperatorRights, *, secure: bool) -> None:
        """`secure`: the console answers HTTPS."""
        self.site = site
        self.access = access
        self.operations = Operations(site, rights)
        self.secure = secure
        self._templates = Environment(
            loader=FileSystemLoader(_TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS)
        self._templates.globals.update(
            link=link, pok=site.commands.line, columns=COLUMNS, history=site.history.of, samples=SAMPLES, height=HEIGHT
        )

    def page(self, template: str, request: Request, status: int = 200, **shown_there: Any) -> Response:
        seen, now_ms = self.site.look(), self.site.clock.now_ms()
        visitor = self.access.visitor(request) or READER
        text = self._templates.get_template(template).render(
            path=request.url.path,
            where=self.site.where,
            seen=seen,
            overview=seen.overview,
            away=self.is_away(seen),
            now_ms=now_ms,
            operator=visitor.operator,
            csrf=self.access.csrf(visitor),
            has_operators=bool(self.access.operators),
            every_s=self.site.every_s,
            **shown_there,
        )
        return HTMLResponse(text, status)

    def is_away(self, seen: GatheredOverview) -> bool:
        """Whether the data are not of now: the cluster does not answer, or the overview is old."""
        overview = seen.overview
        late = overview is not None and self.site.clock.now_ms() - overview.gathered_ms > _LATE_MS
        return bool(seen.failure) or late

    def overview_of(self, topic: str, name: str) -> SubscriptionOverview | None:
        overview = self.site.look().overview
        return None if overview is None else overview.subscription(topic, name)


def query(
    problems: list[Problem], request: Callable[..., CachedResponse[T]], *arguments: Any
) -> CachedResponse[T] | None:
    """The answer; None, and a line among the problems, where there is none."""
    try:
        found = request(*arguments)
    except Unanswered as failure:
        problems.append(Problem(str(failure), failure.away))
        return None
    if found.failure:
        problems.append(Problem(found.failure, found.away))
    return found
