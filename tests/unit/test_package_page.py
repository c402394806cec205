"""The page of the package on an index: README with links into the repository."""

from __future__ import annotations

import re

import pytest

from hatch_build import RepositoryMetadataHook, readme_for_index
from tests.documents import ROOT, is_absolute, leads_nowhere, links

REPOSITORY = "https://git.example/team/fork"
TAG = "v9.8.7"


def _hook(repository: object) -> RepositoryMetadataHook:
    return RepositoryMetadataHook(str(ROOT), {"repository": repository})


def test_each_link_is_absolute_and_names_what_the_repository_has() -> None:
    metadata: dict[str, object] = {"version": TAG[1:]}
    _hook(REPOSITORY).update(metadata)
    readme, urls = metadata["readme"], metadata["urls"]
    assert isinstance(readme, dict)
    assert isinstance(urls, dict)
    assert "<!--" not in readme["text"]
    found = [link for link in re.findall(r"\]\(([^)]+)\)", readme["text"]) if not link.startswith("#")]
    assert len(found) >= len({link for link in links(ROOT / "README.md") if not link.startswith("#")}) > 20
    assert all(map(is_absolute, found))
    inside = [link for link in [*found, *urls.values()] if link.startswith(f"{REPOSITORY}/")]
    assert len(inside) > 20
    wrong = []
    for link in inside:
        path = re.fullmatch(rf"{REPOSITORY}/(?:blob|raw|tree)/{TAG}/(.+)", link)
        if (path is None and not link.endswith("/issues")) or (path and leads_nowhere(ROOT / "README.md", path[1])):
            wrong.append(link)
    assert wrong == []
    assert set(urls) == {"Source", "Documentation", "Changelog", "Security", "Issues"}


def test_pictures_are_raw_files_and_other_targets_stay() -> None:
    text = (
        "![a demo](docs/images/demo.png) [page](docs/cli.md#pok-run) [here](#first) [out](https://kafka.apache.org)\n"
    )
    assert readme_for_index(text, REPOSITORY, TAG) == (
        f"![a demo]({REPOSITORY}/raw/{TAG}/docs/images/demo.png) [page]({REPOSITORY}/blob/{TAG}/docs/cli.md#pok-run) "
        "[here](#first) [out](https://kafka.apache.org)\n"
    )


@pytest.mark.parametrize("wrong", [None, "", "git.example/team", "https://git.example/team/", 7])
def test_a_repository_that_is_no_url_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"hooks\.custom\.repository: an https:// URL .*, not "):
        _hook(wrong).update({"version": TAG[1:]})
