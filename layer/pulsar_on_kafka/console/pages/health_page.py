"""The first page: whether all is well, and what needs an operator most."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pulsar_on_kafka.admin.overview.consumption import ConsumptionState
from pulsar_on_kafka.admin.overview.records import Overview
from pulsar_on_kafka.console.concerns import MAX_SHOWN, Findings, concerns_of, longest_stuck, sentence
from pulsar_on_kafka.console.pages.renderer import PageRenderer, Problem, query


def health_page(renderer: PageRenderer, request: Request) -> Response:
    seen = renderer.site.look()
    found = None if seen.overview is None else _findings(renderer, seen.overview)
    concerns = [] if found is None else concerns_of(found)
    return renderer.page(
        "health.html",
        request,
        unknown=renderer.is_away(seen),
        said="" if found is None else sentence(found, concerns),
        worst=concerns[:MAX_SHOWN],
        others=concerns[MAX_SHOWN:],
        unchecked=[] if found is None else found.unchecked,
        counts=None if seen.overview is None else _counts(seen.overview),
    )


def _findings(renderer: PageRenderer, overview: Overview) -> Findings:
    site = renderer.site
    problems: list[Problem] = []
    stuck = longest_stuck(overview)
    transactions, roles = query(problems, site.transactions), query(problems, site.roles)
    consumers = None if stuck is None else query(problems, site.consumers, stuck.topic, stuck.subscription)
    return Findings(
        overview,
        site.dead_letters_grown,
        None if transactions is None or transactions.failure else transactions.value,
        None if roles is None or roles.failure else roles.value,
        () if consumers is None else consumers.value,
    )


def _counts(overview: Overview) -> dict[str, int]:
    """The numbers of subscriptions by state, and of what is left in dead letter topics."""
    states = [each.state for each in overview.subscriptions]
    return {
        **{state.value: states.count(state) for state in ConsumptionState},
        "dead-letters": sum(each.dead_letters for each in overview.subscriptions),
    }
