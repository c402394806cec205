"""The messages of KEDA's external scaler. Needs the extra `scaler`.

Source: `externalscaler.proto` of KEDA 2. Its optional method `StreamMetricSpec` is not served: targets change only with
the trigger, for which KEDA sends a new request.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from pulsar_on_kafka_mapping.wire.message_table import described

_PACKAGE: Final = "externalscaler"
SERVICE: Final = f"{_PACKAGE}.ExternalScaler"

_MESSAGES: Final = """
MetadataEntry           1 string key  2 string value
ScaledObjectRef         1 string name  2 string namespace  3 MetadataEntry scalerMetadata*
IsActiveResponse        1 bool result
MetricSpec              1 string metricName  2 int64 targetSize  3 double targetSizeFloat
GetMetricSpecResponse   1 MetricSpec metricSpecs*
GetMetricsRequest       1 ScaledObjectRef scaledObjectRef  2 string metricName
MetricValue             1 string metricName  2 int64 metricValue  3 double metricValueFloat
GetMetricsResponse      1 MetricValue metricValues*
"""
"""`MetadataEntry` stands for the map's entry, which has the same bytes."""

_POOL: Final = DescriptorPool()
_POOL.Add(described("externalscaler.proto", _PACKAGE, _MESSAGES))


def message_class(name: str) -> Any:
    """The class of one of `_MESSAGES`. Raises KeyError."""
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
