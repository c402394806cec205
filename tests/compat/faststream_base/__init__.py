"""FastStream's own broker tests, run for `PulsarBroker` from a checkout of FastStream that `POK_FASTSTREAM` names.

    POK_FASTSTREAM=/path/to/faststream python -m pytest -m kafka --require kafka tests/compat/faststream_base

They are `tests/brokers/base` of https://github.com/ag2ai/faststream, which is in no package. `testclient` there
needs `pip install dirty-equals`. Without the variable nothing is collected.
"""
