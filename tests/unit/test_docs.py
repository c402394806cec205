"""The documentation leads where it says: links hit, and each package has a page."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.documents import ROOT, folders, pages

PACKAGES = ("layer", "mapping", "schema_compat", "spark_connector")
ARCHITECTURE_WORDS = 2_500

_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_PAGE = re.compile(
    r"(?<![\w./])((?:docs|layer|mapping|schema_compat|spark_connector|tests)/[\w./-]+\.md)(?:#([\w-]+))?"
)
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)


def _prose(page: Path) -> str:
    """Without blocks of code, in which `[a](b)` and `# c` mean something else."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def _anchor(heading: str) -> str:
    """The anchor that GitHub makes: the text in lower case without punctuation, spaces as hyphens."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.replace("`", "").strip().lower()).replace(" ", "-")


@cache
def _anchors(page: Path) -> frozenset[str]:
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in _HEADING.findall(_prose(page)):
        anchor = _anchor(heading)
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return frozenset(found)


def _leads_nowhere(page: Path, link: str) -> bool:
    path, _, anchor = unquote(link).partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return True
    return bool(anchor) and (target.suffix != ".md" or anchor not in _anchors(target))


def _words(page: Path) -> int:
    return len(page.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = [link for link in _LINK.findall(_CODE.sub("", _prose(page))) if not re.match(r"[a-z][a-z+.-]*:", link)]
    assert [link for link in links if _leads_nowhere(page, link)] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_table_is_one(page: Path) -> None:
    """Rows behind an empty line are no table any more, but text with strokes."""
    blocks = re.findall(r"(?:^[ \t]*\|.*\n?)+", _prose(page), re.MULTILINE)
    heads = [block.split("\n")[1] if "\n" in block.strip() else "" for block in blocks]
    assert [head for head in heads if not re.fullmatch(r"[ \t]*\|[ :|-]+\|[ \t]*", head)] == []


def test_pages_are_found() -> None:
    names = {str(page.relative_to(ROOT)) for page in pages()}
    assert {
        "README.md",
        "CONTRIBUTING.md",
        "docs/architecture.md",
        "layer/pulsar_on_kafka/broker/cursor/README.md",
    } <= names


def test_anchors_are_github_s() -> None:
    assert _anchor("Who has to trust whom?") == "who-has-to-trust-whom"
    assert _anchor("What `pok` does: a list, [linked](x.md)") == "what-pok-does-a-list-linked"


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
                    if not (ROOT / page).exists() or (anchor and anchor not in _anchors(ROOT / page)):
                        missing.add(f"{path.relative_to(ROOT)}: {page}#{anchor}")
    assert missing == set()
