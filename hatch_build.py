"""Package metadata that depends on where the repository is published: the project's URLs, and its README with absolute
links.

An index shows the README outside the repository, where `docs/features.md` and `docs/images/demo.png` lead nowhere. A
link becomes an address at the tag of the package's version, so that the page of an old version keeps its own pages.
"""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_LINK = re.compile(r"(?P<picture>!?)(?P<text>\[[^\]]*\])\((?P<target>(?![a-z][a-z+.-]*:)[^)\s#]+)")
"""A link or a picture whose target is a path; links to a heading of the same page stay as they are."""


def readme_for_index(text: str, repository: str, tag: str) -> str:
    """README without comments, which hold what only tests read, and with absolute links to `repository` at `tag`."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}{link['text']}({repository}/{kind}/{tag}/{link['target']}"

    return _LINK.sub(absolute, _COMMENT.sub("", text))


class RepositoryMetadataHook(MetadataHookInterface):
    """Sets `urls` and `readme` from `repository` of `[tool.hatch.metadata.hooks.custom]`."""

    def update(self, metadata: dict) -> None:  # type: ignore[type-arg] - as declared by hatchling
        repository = self.config.get("repository")
        if not isinstance(repository, str) or not re.fullmatch(r"https://\S+[^/\s]", repository):
            raise ValueError(
                "pyproject.toml, tool.hatch.metadata.hooks.custom.repository: an https:// URL without a slash at its "
                f"end is expected, not {repository!r}"
            )
        tag = f"v{metadata['version']}"
        metadata["urls"] = {
            "Source": repository,
            "Documentation": f"{repository}/tree/{tag}/docs",
            "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
            "Security": f"{repository}/blob/{tag}/SECURITY.md",
            "Issues": f"{repository}/issues",
        }
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": readme_for_index(text, repository, tag),
        }
