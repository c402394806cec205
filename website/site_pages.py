"""Pages of the site, and the files of the repository that they show.

On GitHub a page links to anything in the repository by its relative path. The site has a page for each such target: the
Markdown file itself, a source file as a block of code, or a folder as a list. So no link leaves the site for a file of
the repository.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from website.markdown_links import replace_targets, targets
from website.python_markdown import for_python_markdown

DOCS = "docs"
FRONT_PAGE = "README.md"
PROJECT_PAGES = (FRONT_PAGE, "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
_ELSEWHERE = "repository"
"""The site's folder of what is not below `docs/`."""
_HIDDEN = "---\nsearch:\n  exclude: true\n---\n\n"
_LANGUAGES = {
    "Dockerfile": "docker",
    ".py": "python",
    ".json": "json",
    ".yml": "yaml",
    ".yaml": "yaml",
    ".java": "java",
}
_LANGUAGES |= {".sh": "sh", ".toml": "toml", ".service": "ini", ".timer": "ini", ".xml": "xml", ".sql": "sql"}
_HEADING = re.compile(r"^# +(.+?)[ #]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SitePage:
    """A page that shows `path` of the repository; `uri` is its Markdown file, relative to `docs/` as mkdocs sees it."""

    path: str
    uri: str


class SitePages:
    """The pages below `docs/`, README and its neighbours, and all that is reachable from them by links."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._pages: dict[str, SitePage] = {}
        waiting = [str(page.relative_to(root).as_posix()) for page in sorted((root / DOCS).rglob("*.md"))]
        waiting += [name for name in PROJECT_PAGES if (root / name).exists()]
        while waiting:
            path = waiting.pop()
            if path in self._pages or not self._is_page(path):
                continue
            self._pages[path] = SitePage(path, self._uri(path))
            waiting += self._linked(path)
        self._by_uri = {page.uri: page for page in self._pages.values()}

    def generated(self) -> Iterator[SitePage]:
        """Pages whose text is not a file below `docs/`."""
        for page in self._pages.values():
            if not (page.path.startswith(f"{DOCS}/") and page.path.endswith(".md")):
                yield page

    def text(self, page: SitePage) -> str:
        """Markdown of a page, with the links that it has in the repository."""
        path = self._root / page.path
        if path.is_dir():
            return self._folder_list(path)
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            return text
        language = _LANGUAGES.get(path.suffix) or _LANGUAGES.get(path.name, "text")
        return f"{_HIDDEN}# {page.path}\n\n~~~~~~ {language}\n{text.rstrip()}\n~~~~~~\n"

    def original(self, uri: str) -> str | None:
        """The Markdown file that a page shows; None for a source file, and for a page that is not the repository's."""
        page = self._by_uri.get(uri)
        return self.text(page) if page and page.path.endswith(".md") else None

    def for_site(self, markdown: str, uri: str) -> str:
        """The page's text with the links of the site. A target that is not there stays, and mkdocs reports it."""
        page = self._by_uri.get(uri)
        if page is None:
            return markdown

        def link(target: str) -> str:
            path, mark, anchor = target.partition("#")
            found = self._resolve(page.path, path)
            if found is None or not path:
                return target
            return f"{posixpath.relpath(self._uri(found), posixpath.dirname(uri) or '.')}{mark}{anchor}"

        return for_python_markdown(replace_targets(markdown, link))

    def _linked(self, path: str) -> list[str]:
        if path.endswith(".md"):
            text = (self._root / path).read_text(encoding="utf-8")
        elif (self._root / path).is_dir():
            text = self._folder_list(self._root / path)
        else:
            return []
        found = (self._resolve(path, target.partition("#")[0]) for target in targets(text))
        return [each for each in found if each is not None]

    def _resolve(self, page: str, target: str) -> str | None:
        """The path of what a link of `page` leads to; None where that is no file or folder of the repository."""
        if not target or target.startswith("/") or re.match(r"[a-z][a-z+.-]*:", target):
            return None
        base = page if (self._root / page).is_dir() else posixpath.dirname(page)
        path = posixpath.normpath(posixpath.join(base, unquote(target)))
        if path.startswith("..") or not (self._root / path).exists():
            return None
        if (self._root / path / "README.md").is_file():
            return posixpath.normpath(posixpath.join(path, "README.md"))
        return path

    def _is_page(self, path: str) -> bool:
        """Whether the site shows it on a page of its own; pictures below `docs/` are copied by mkdocs."""
        return not path.startswith(f"{DOCS}/") or path.endswith(".md") or (self._root / path).is_dir()

    def _uri(self, path: str) -> str:
        if path == FRONT_PAGE:
            return "index.md"
        place = PurePosixPath(path)
        inside = place.relative_to(DOCS) if place.parts[0] == DOCS else PurePosixPath(_ELSEWHERE) / place
        if (self._root / path).is_dir():
            return str(inside / "index.md")
        return str(inside) if place.suffix == ".md" or place.parts[0] == DOCS else f"{inside}.md"

    def _folder_list(self, folder: Path) -> str:
        name = folder.relative_to(self._root).as_posix()
        lines = [f"* [{_title(each)}]({each.name})" for each in sorted(folder.iterdir()) if _is_listed(each)]
        return "\n".join([f"# {name}", "", *lines, ""])


def _title(path: Path) -> str:
    heading = _HEADING.search(path.read_text(encoding="utf-8")) if path.suffix == ".md" else None
    return heading[1] if heading else f"`{path.name}`"


def _is_listed(path: Path) -> bool:
    """Whether it is part of the repository: no cache, no build, and something in it."""
    if path.name.startswith(".") or path.name in ("__pycache__", "build", "target", "dist"):
        return False
    return any(files for _, _, files in os.walk(path)) if path.is_dir() else path.suffix not in (".png", ".pyc")
