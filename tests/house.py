"""`python -m tests.house`: figures of the repository's structure and language, of which docs/architecture.md and
CONTRIBUTING.md set some limits. Nothing is run but Python's parser."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.documents import ROOT

ROOTS: Final = ("layer", "mapping", "schema_compat", "spark_connector")
MAX_METHODS: Final = 40
MAX_CLASS_LINES: Final = 600
MAX_MODULE_LINES: Final = 800
MAX_SENTENCE_WORDS: Final = 25

REPLACED_WORDS: Final = re.compile(
    r"\b(somebody|nobody|whoever|everybody|anybody|whom|comes? again|goes on|is told|hears? of|of (ours|theirs))\b",
    re.IGNORECASE,
)
"""Words for which the field has better ones: the role, redelivered, continues, receives."""
REPLACED_NAMES: Final = re.compile(r"\b\w*(MOST_|LEAST_|_AGAIN_S\b)\w*")

_CODE_BLOCK: Final = re.compile(r"^(```.*?^```|~~~.*?^~~~)[^\n]*$|<!--.*?-->", re.DOTALL | re.MULTILINE)
_NO_PROSE: Final = re.compile(r"`[^`]*`|\]\([^)]*\)|https?://\S+|[*_#>|]")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z*`\[(0-9])")


def tracked(*patterns: str) -> list[Path]:
    """Files that Git knows, of the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


def classes(module: Path) -> Iterator[ast.ClassDef]:
    yield from (node for node in ast.walk(ast.parse(module.read_text("utf-8"))) if isinstance(node, ast.ClassDef))


def methods(found: ast.ClassDef) -> int:
    return sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in found.body)


def lines(found: ast.ClassDef) -> int:
    return (found.end_lineno or found.lineno) - found.lineno + 1


def prose(page: Path) -> str:
    """A page without its code."""
    return _NO_PROSE.sub(" ", _CODE_BLOCK.sub("", page.read_text("utf-8")))


def sentences(page: Path) -> Iterator[str]:
    """Of paragraphs and list entries; rows of tables and headings are none."""
    text = _CODE_BLOCK.sub("", page.read_text("utf-8"))
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.)\s)", text):
        kept = [line for line in paragraph.splitlines() if not line.lstrip().startswith(("|", "#"))]
        yield from _SENTENCE_END.split(_NO_PROSE.sub(" ", " ".join(kept)))


def words(text: str) -> int:
    return len(re.findall(r"[A-Za-z][\w'-]*", text))


def long_sentences(page: Path) -> list[str]:
    return [sentence for sentence in sentences(page) if words(sentence) > MAX_SENTENCE_WORDS]


def figures() -> Mapping[str, int]:
    product = tracked(*(f"{root}/*.py" for root in ROOTS))
    tests, pages = tracked("tests/*.py"), tracked("*.md")
    texts = {path: path.read_text("utf-8") for path in [*product, *tests, *pages]}
    found = [each for module in product for each in classes(module)]
    names = Counter(each.name for each in found if not each.name.startswith("_"))
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {
        "symbolic links": sum(line.startswith("120000") for line in listed.splitlines()),
        f"classes above {MAX_METHODS} methods": sum(methods(each) > MAX_METHODS for each in found),
        f"classes above {MAX_CLASS_LINES} lines": sum(lines(each) > MAX_CLASS_LINES for each in found),
        f"modules above {MAX_MODULE_LINES} lines": sum(
            texts[module].count("\n") > MAX_MODULE_LINES for module in product
        ),
        "public class names used more than once": sum(count > 1 for count in names.values()),
        "replaced words in code": sum(len(REPLACED_WORDS.findall(texts[path])) for path in product),
        "replaced words in pages": sum(len(REPLACED_WORDS.findall(texts[path])) for path in pages),
        "replaced names in code": sum(len(REPLACED_NAMES.findall(texts[path])) for path in [*product, *tests]),
        f"sentences above {MAX_SENTENCE_WORDS} words in pages": sum(len(long_sentences(page)) for page in pages),
        "words in pages": sum(words(prose(page)) for page in pages),
        "product lines": sum(texts[module].count("\n") for module in product),
        "test lines": sum(texts[module].count("\n") for module in tests),
    }


if __name__ == "__main__":
    for name, value in figures().items():
        print(f"{value:>9,}  {name}")
