"""Hooks of mkdocs: pages from outside `docs/`, their links, the reference, and a check of what the site loads."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from website.external_references import loaded_by_site
from website.python_markdown import differing_blocks
from website.reference_pages import reference_pages
from website.site_pages import SitePages

ROOT = Path(__file__).resolve().parents[1]
STYLE = "site.css"
_log = logging.getLogger("mkdocs.website")
_pages = SitePages(ROOT)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what is no file below `docs/`. Pages without a place in the navigation are found by links and by search."""
    in_navigation = set(_uris(config.nav))
    texts = [(page.uri, _pages.text(page)) for page in _pages.generated()]
    for uri, text in [*texts, *reference_pages()]:
        inclusion = InclusionLevel.INCLUDED if uri in in_navigation else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, uri, content=text, inclusion=inclusion))
    files.append(File.generated(config, STYLE, content=(Path(__file__).parent / STYLE).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page's Markdown without comments, and with links of the site."""
    return _pages.for_site(markdown, page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Warns, which is strict, of a page that has other lists, tables or blocks of code than on GitHub."""
    original = _pages.original(page.file.src_uri)
    differing = differing_blocks(original, html) if original else []
    if differing:
        _log.warning("'%s' is not what GitHub shows: %s", page.file.src_uri, ", ".join(differing))


def on_post_build(config: MkDocsConfig) -> None:
    """Fails the build if the site would load anything from another server."""
    found = list(loaded_by_site(Path(config.site_dir)))
    if found:
        raise PluginError("the site loads from other servers:\n" + "\n".join(found))


def _uris(navigation: object) -> Iterator[str]:
    if isinstance(navigation, str):
        yield navigation
    elif isinstance(navigation, dict):
        yield from _uris(list(navigation.values()))
    elif isinstance(navigation, list):
        for entry in navigation:
            yield from _uris(entry)
