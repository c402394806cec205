"""The documentation leads where it says: links hit, and each package has a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents import ROOT, anchor_of, anchors, folders, is_absolute, leads_nowhere, links, pages, prose

PACKAGES = ("layer", "mapping", "schema_compat", "spark_connector")
ARCHITECTURE_WORDS = 2_500

_PAGE = re.compile(
    r"(?<![\w./])((?:docs|layer|mapping|schema_compat|spark_connector|tests)/[\w./-]+\.md)(?:#([\w-]+))?"
)


def _words(page: Path) -> int:
    return len(page.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert [link for link in links(page) if not is_absolute(link) and leads_nowhere(page, link)] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_table_is_one(page: Path) -> None:
    """Rows behind an empty line are no table any more, but text with strokes."""
    blocks = re.findall(r"(?:^[ \t]*\|.*\n?)+", prose(page), re.MULTILINE)
    heads = [block.split("\n")[1] if "\n" in block.strip() else "" for block in blocks]
    assert [head for head in heads if not re.fullmatch(r"[ \t]*\|[ :|-]+\|[ \t]*", head)] == []


def test_each_page_of_docs_has_a_place_in_the_site_s_navigation() -> None:
    navigation = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    docs = ROOT / "docs"
    missing = {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - set(navigation)
    assert missing == set(), "add them to nav of mkdocs.yml"


def test_pages_are_found() -> None:
    names = {str(page.relative_to(ROOT)) for page in pages()}
    assert {
        "README.md",
        "CONTRIBUTING.md",
        "docs/architecture.md",
        "layer/pulsar_on_kafka/broker/cursor/README.md",
    } <= names


def test_anchors_are_github_s() -> None:
    assert anchor_of("Who has to trust whom?") == "who-has-to-trust-whom"
    assert anchor_of("What `pok` does: a list, [linked](x.md)") == "what-pok-does-a-list-linked"


def test_the_architecture_is_read_in_a_quarter_of_an_hour() -> None:
    assert _words(ROOT / "docs" / "architecture.md") <= ARCHITECTURE_WORDS


def test_each_guarantee_names_tests_that_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| .+ \| (.+) \|$", page.partition("## What always holds")[2], re.MULTILINE)
    assert len(rows) >= 9
    named = [re.findall(r"`([\w/]+\.py)`", row) for row in rows]
    assert all(named)
    assert [name for names in named for name in names if not (ROOT / "tests" / name).exists()] == []


def test_every_package_has_a_readme() -> None:
    packages = [package.parent for top in PACKAGES for package in (ROOT / top).glob("*/__init__.py")]
    packages += [floor.parent for floor in (ROOT / "layer").glob("*/*/__init__.py")]
    lacking = {str(package.relative_to(ROOT)) for package in packages if not (package / "README.md").exists()}
    assert lacking == set()


def test_docstrings_name_pages_that_are_there() -> None:
    missing = set()
    for top in (*PACKAGES, "tests", "benchmarks", "examples"):
        for folder, files in folders(ROOT / top):
            for path in (folder / name for name in files if name.endswith(".py")):
                for page, anchor in _PAGE.findall(path.read_text(encoding="utf-8")):
                    if not (ROOT / page).exists() or (anchor and anchor not in anchors(ROOT / page)):
                        missing.add(f"{path.relative_to(ROOT)}: {page}#{anchor}")
    assert missing == set()
