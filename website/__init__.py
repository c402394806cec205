"""The documentation site, beside `mkdocs.yml`: pages from the whole repository, with links between them."""
