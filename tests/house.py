"""`python -m tests.house`: figures of the repository's structure and language. Some of them have limits, which
`tests/unit/test_words.py` and `tests/unit/documents/test_sentences.py` hold."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.documents import MAX_SENTENCE_WORDS, ROOT, long_sentences, pages, sentences

SOURCES: Final = ("layer", "mapping", "schema_compat", "spark_connector")
MAX_METHODS: Final = 40
MAX_CLASS_LINES: Final = 600
MAX_MODULE_LINES: Final = 800

REPLACED_WORDS: Final = re.compile(
    r"(?<![a-z])(somebody|nobody|whoever|everybody|anybody|whom|comes?[ _]again|goes[ _]on|is[ _]told|hears?[ _]of"
    r"|of[ _](ours|theirs))(?![a-z])",
    re.IGNORECASE,
)
"""Words for which the field has better ones: the role, redelivered, continues, receives."""
_NO_SUBJECT: Final = re.compile(r"(What|Which|Who|How|Of|One that)\b")
_CONSTANT: Final = re.compile(r"\b[A-Z_][A-Z0-9_]+\b")
_BAD_CONSTANT: Final = re.compile(r"(?:^|_)(?<!AT_)(?:MOST|LEAST)(?:_(?!BITS\b)|$)|_AGAIN_S$")
"""Limits are MAX_X and MIN_X, pauses before a retry X_RETRY_INTERVAL_S. Pulsar has fields most_bits and least_bits."""


def modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def bad_constants(text: str) -> list[str]:
    return [name for name in _CONSTANT.findall(text) if _BAD_CONSTANT.search(name)]


def docstrings(module: Path) -> Iterator[str]:
    """Docstrings of a module, its classes and functions, and the strings under attributes and constants."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def docstrings_without_subject(module: Path) -> list[str]:
    """Docstrings whose first word is a question word or "Of", and not the name of the thing."""
    return [text for text in docstrings(module) if _NO_SUBJECT.match(text)]


def public_classes(module: Path) -> Iterator[str]:
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def _classes(module: Path) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(ast.parse(module.read_text("utf-8"))) if isinstance(node, ast.ClassDef))


def _methods(found: ast.ClassDef) -> int:
    return sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in found.body)


def _lines(found: ast.ClassDef) -> int:
    return (found.end_lineno or found.lineno) - found.lineno + 1


def figures() -> Mapping[str, int]:
    product, tests = list(modules(*SOURCES)), list(modules("tests"))
    found = [each for module in product for each in _classes(module)]
    names = Counter(name for module in product for name in public_classes(module))
    source = {path: path.read_text("utf-8") for path in [*product, *tests]}
    prose = [text for page in pages() for _, text in sentences(page)]
    links = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {
        "symbolic links": sum(line.startswith("120000") for line in links.splitlines()),
        f"classes above {MAX_METHODS} methods": sum(_methods(each) > MAX_METHODS for each in found),
        f"classes above {MAX_CLASS_LINES} lines": sum(_lines(each) > MAX_CLASS_LINES for each in found),
        f"modules above {MAX_MODULE_LINES} lines": sum(source[each].count("\n") > MAX_MODULE_LINES for each in product),
        "public class names used more than once": sum(count > 1 for count in names.values()),
        "replaced words in product code": sum(len(REPLACED_WORDS.findall(source[module])) for module in product),
        "docstrings without a subject": sum(len(docstrings_without_subject(module)) for module in product),
        "replaced words in pages": sum(len(REPLACED_WORDS.findall(text)) for text in prose),
        f"sentences above {MAX_SENTENCE_WORDS} words in pages": sum(len(long_sentences(page)) for page in pages()),
        "words in pages": sum(len(text.split()) for text in prose),
        "product lines": sum(source[module].count("\n") for module in product),
        "test lines": sum(source[module].count("\n") for module in tests),
    }


if __name__ == "__main__":
    for name, value in figures().items():
        print(f"{value:>9,}  {name}")
