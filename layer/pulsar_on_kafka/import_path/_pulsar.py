"""Found in place of the official client's extension by programs that `pok run` starts."""

import sys

import pulsar_on_kafka._pulsar
import pulsar_on_kafka.as_pulsar

sys.modules[__name__] = pulsar_on_kafka._pulsar
