"""Scripts, styles, fonts and pictures that a built page would load from another server.

The site is built and read without network access: links may lead elsewhere, but nothing is loaded from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

_LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
_LOADING |= {"embed": "src", "object": "data"}
_PASSIVE_LINKS = {"canonical", "prev", "next", "alternate", "author", "license"}
_CSS = re.compile(r"(?:url\(\s*|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)")


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self._in_style = tag == "style"
        loaded = values.get(_LOADING[tag]) if tag in _LOADING else None
        if tag == "link" and not set((values.get("rel") or "").split()) <= _PASSIVE_LINKS:
            loaded = values.get("href")
        if loaded and loaded.startswith(("http:", "https:", "//")):
            self.found.append(loaded)
        self.found += _CSS.findall(values.get("style") or "")

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.found += _CSS.findall(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False


def loaded_by_page(html: str) -> list[str]:
    parser = _Loads()
    parser.feed(html)
    parser.close()
    return parser.found


def loaded_by_site(site: Path) -> Iterator[str]:
    """`file: URL` for each reference."""
    for path in sorted(site.rglob("*")):
        if path.suffix == ".html":
            found = loaded_by_page(path.read_text(encoding="utf-8"))
        elif path.suffix == ".css":
            found = _CSS.findall(path.read_text(encoding="utf-8"))
        else:
            continue
        yield from (f"{path.relative_to(site)}: {url}" for url in dict.fromkeys(found))
