"""Found in place of the official client by programs that `pok run` starts."""

import pulsar_on_kafka.as_pulsar  # noqa: F401 - it replaces this module
