"""Links of the repository become links of the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from website.external_references import loaded_by_page, loaded_by_site
from website.markdown_links import replace_targets, targets
from website.python_markdown import differing_blocks, for_python_markdown
from website.site_pages import DOCS, SitePage, SitePages


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "README.md": f"# Front\n\n[guide]({DOCS}/guide.md#first) ![picture]({DOCS}/images/a.png)\n",
        f"{DOCS}/guide.md": "# Guide\n\n"
        "[front](../README.md) [code](../examples/a.py) [folder](../examples) [tables](tables)\n"
        "[gone](../examples/gone.py) [out](https://kafka.apache.org) [here](#first) [floor](../code/floor)\n",
        f"{DOCS}/tables/one.md": "# One\n\n[up](../guide.md)\n",
        "docs/images/a.png": "",
        "examples/a.py": 'print("""```""")\n',
        "examples/__pycache__/a.pyc": "",
        "code/floor/README.md": "# Floor\n\n[inner](inner.md)\n",
        "code/floor/inner.md": "# Inner\n",
        "code/unlinked.md": "# Unlinked\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_link_leads_to_the_page_that_shows_the_file(root: Path) -> None:
    site = SitePages(root)
    assert site.for_site((root / DOCS / "guide.md").read_text(), "guide.md") == (
        "# Guide\n\n[front](index.md) [code](repository/examples/a.py.md) [folder](repository/examples/index.md) "
        "[tables](tables/index.md)\n[gone](../examples/gone.py) [out](https://kafka.apache.org) [here](#first) "
        "[floor](repository/code/floor/README.md)\n"
    )
    front = site.for_site((root / "README.md").read_text(), "index.md")
    assert front == "# Front\n\n[guide](guide.md#first) ![picture](images/a.png)\n"


def test_pages_are_those_that_links_reach(root: Path) -> None:
    site = SitePages(root)
    generated = {page.path: page for page in site.generated()}
    assert set(generated) == {
        "README.md",
        "docs/tables",
        "examples",
        "examples/a.py",
        "code/floor/README.md",
        "code/floor/inner.md",
    }
    code = generated["examples/a.py"]
    assert code == SitePage("examples/a.py", "repository/examples/a.py.md")
    assert '\n~~~~~~ python\nprint("""```""")\n~~~~~~\n' in site.text(code)
    assert site.original("repository/code/floor/inner.md") == "# Inner\n"
    assert site.original(code.uri) is site.original("reference/some.md") is None
    assert site.text(generated["examples"]) == "# examples\n\n* [`a.py`](a.py)\n"
    assert site.text(generated["docs/tables"]) == "# docs/tables\n\n* [One](one.md)\n"
    listed = site.for_site(site.text(generated["docs/tables"]), "tables/index.md")
    assert listed == "# docs/tables\n\n* [One](one.md)\n"


def test_code_and_comments_have_no_links() -> None:
    text = "[a](a.md) `[b](b.md)` ``[`](c.md)``\n```sh\n[d](d.md)\n```\n<!-- hidden: sh\n[e](e.md)\n-->\n[f](<f.md>)\n"
    assert [*targets(text)] == ["a.md", "f.md"]
    assert replace_targets(text, str.upper) == (
        "[a](A.MD) `[b](b.md)` ``[`](c.md)``\n```sh\n[d](d.md)\n```\n[f](<F.MD>)\n"
    )


def test_blocks_stand_apart_and_lists_are_indented_for_python_markdown() -> None:
    text = "Text:\n* one\n  goes on\n  1. two\n     ```sh\n     ls\n     ```\n* three\n\n| a |\n|---|\n| b |\n## End\n"
    assert for_python_markdown(text) == (
        "Text:\n\n* one\n    goes on\n    1. two\n\n        ```sh\n        ls\n        ```\n\n* three\n\n"
        "| a |\n|---|\n| b |\n\n## End\n"
    )


def test_blocks_that_were_lost_are_counted() -> None:
    text = "| a |\n|---|\n| b |\n\n* one\n* two\n"
    whole = "<table><tr><th>a</th></tr><tr><td>b</td></tr></table><ul><li>one</li><li>two</li></ul>"
    assert differing_blocks(text, whole) == []
    assert differing_blocks(text, whole.replace("<li>one</li>", "")) == ["li: 1 instead of 2"]


def test_what_a_page_loads_from_another_server_is_found(tmp_path: Path) -> None:
    page = (
        '<link rel="canonical" href="https://a/"><link rel="stylesheet" href="https://b/x.css"><a href="https://c/">c</a>'
        '<script src="//d/x.js"></script><img src="images/e.png"><style>@import "https://f/x.css";</style>'
        '<p style="background: url(https://g/x.png)"></p><pre>url(https://h/)</pre>'
    )
    loaded = ["https://b/x.css", "//d/x.js", "https://f/x.css", "https://g/x.png"]
    assert loaded_by_page(page) == loaded
    (tmp_path / "page.html").write_text(page)
    (tmp_path / "x.css").write_text("@font-face { src: url('https://i/x.woff2') } a { background: url(k.svg) }")
    assert [*loaded_by_site(tmp_path)] == [*(f"page.html: {url}" for url in loaded), "x.css: https://i/x.woff2"]
