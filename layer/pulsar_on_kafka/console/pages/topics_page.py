"""The page of a cluster's topics in a tree of tenants and namespaces, and the page of one topic."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pulsar_on_kafka.console.formatting import link
from pulsar_on_kafka.console.pages.renderer import PageRenderer, Problem, query
from pulsar_on_kafka.console.pages.requests import listed, topic_of, whole
from pulsar_on_kafka.console.topic_data import details_of, facts_of
from pulsar_on_kafka.console.topic_tree import TopicTree, topic_tree


def topics_page(renderer: PageRenderer, request: Request) -> Response:
    parameters = request.query_params
    chosen, words = parameters.get("in", ""), parameters.get("q", "")[:200]
    overview = renderer.site.look().overview
    tree = TopicTree((), 0, ()) if overview is None else topic_tree(overview, chosen, words)
    page = whole(parameters.get("list")) or 0
    topics = listed(tree.rows, page)
    problems: list[Problem] = []
    names = tuple(each.topic.topic for each in topics["shown"])
    facts = query(problems, facts_of, renderer.site, names) if names else None
    return renderer.page(
        "topics.html",
        request,
        tree=tree,
        chosen=chosen,
        words=words,
        topics=topics,
        facts={} if facts is None else facts.value,
        problems=problems,
        here=lambda **changed: link("/topics", **{"in": chosen, "q": words, "list": page or None, **changed}),
    )


def topic_page(renderer: PageRenderer, request: Request) -> Response:
    parameters = request.query_params
    topic = topic_of(request)
    page = whole(parameters.get("list")) or 0
    problems: list[Problem] = []
    details = query(problems, details_of, renderer.site, topic)
    name = topic if details is None else details.value.stats.topic
    overview = renderer.site.look().overview
    ends = {} if details is None else details.value.stats.end_offsets
    return renderer.page(
        "topic.html",
        request,
        topic=name,
        details=None if details is None else details.value,
        found=next((each for each in (() if overview is None else overview.topics) if each.topic == name), None),
        subscriptions=[each for each in (() if overview is None else overview.subscriptions) if each.topic == name],
        partitions=listed(sorted(ends), page),
        problems=problems,
        here=lambda **changed: link("/topic", **{"topic": name, "list": page or None, **changed}),
    )
