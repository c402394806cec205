"""KEDA's part in tests: a gRPC client with a descriptor of its own of KEDA's messages, which has their map."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import grpc
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.overview.gathering import Gatherer
from pulsar_on_kafka.admin.overview.shared import SharedGatherer
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.scaler.gathering import BacklogGatherer
from pulsar_on_kafka.scaler.server import ScalerServer, ScalerTls
from tests.waiting import PATIENCE_S

METRIC: Final = "pok-backlog"
_TYPE: Final = FieldDescriptorProto
_FIELDS: Final[Mapping[str, tuple[tuple[int, str, Any], ...]]] = {
    "ScaledObjectRef": ((1, "name", _TYPE.TYPE_STRING), (2, "namespace", _TYPE.TYPE_STRING)),
    "IsActiveResponse": ((1, "result", _TYPE.TYPE_BOOL),),
    "MetricSpec": (
        (1, "metricName", _TYPE.TYPE_STRING),
        (2, "targetSize", _TYPE.TYPE_INT64),
        (3, "targetSizeFloat", _TYPE.TYPE_DOUBLE),
    ),
    "GetMetricSpecResponse": ((1, "metricSpecs", "MetricSpec"),),
    "GetMetricsRequest": ((1, "scaledObjectRef", "ScaledObjectRef"), (2, "metricName", _TYPE.TYPE_STRING)),
    "MetricValue": (
        (1, "metricName", _TYPE.TYPE_STRING),
        (2, "metricValue", _TYPE.TYPE_INT64),
        (3, "metricValueFloat", _TYPE.TYPE_DOUBLE),
    ),
    "GetMetricsResponse": ((1, "metricValues", "MetricValue"),),
}
_REPEATED: Final = ("metricSpecs", "metricValues")


def _kedas() -> DescriptorPool:
    file = FileDescriptorProto(name="kedas.proto", package="keda", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, field, kind in fields:
            _add(message, number, field, kind)
    reference = file.message_type[0]
    entry = reference.nested_type.add(name="ScalerMetadataEntry")
    entry.options.map_entry = True
    _add(entry, 1, "key", _TYPE.TYPE_STRING)
    _add(entry, 2, "value", _TYPE.TYPE_STRING)
    field = reference.field.add(name="scalerMetadata", number=3, label=_TYPE.LABEL_REPEATED, type=_TYPE.TYPE_MESSAGE)
    field.type_name = ".keda.ScaledObjectRef.ScalerMetadataEntry"
    pool = DescriptorPool()
    pool.Add(file)
    return pool


def _add(message: DescriptorProto, number: int, name: str, kind: Any) -> None:
    label = _TYPE.LABEL_REPEATED if name in _REPEATED else _TYPE.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, label=label)
    if isinstance(kind, str):
        field.type, field.type_name = _TYPE.TYPE_MESSAGE, f".keda.{kind}"
    else:
        field.type = kind


_POOL: Final = _kedas()
_CLASSES: Final = {name: GetMessageClass(_POOL.FindMessageTypeByName(f"keda.{name}")) for name in _FIELDS}


class Keda:
    """A client of one scaler. Each call names the metadata of a trigger, and raises `grpc.RpcError`."""

    def __init__(self, channel: grpc.Channel) -> None:
        def unary(method: str, request: str, response: str) -> Any:
            path = f"/externalscaler.ExternalScaler/{method}"
            return channel.unary_unary(path, _CLASSES[request].SerializeToString, _CLASSES[response].FromString)

        self._is_active = unary("IsActive", "ScaledObjectRef", "IsActiveResponse")
        self._specs = unary("GetMetricSpec", "ScaledObjectRef", "GetMetricSpecResponse")
        self._metrics = unary("GetMetrics", "GetMetricsRequest", "GetMetricsResponse")
        self._stream = channel.unary_stream(
            "/externalscaler.ExternalScaler/StreamIsActive",
            _CLASSES["ScaledObjectRef"].SerializeToString,
            _CLASSES["IsActiveResponse"].FromString,
        )

    def is_active(self, **metadata: str) -> bool:
        return bool(self._is_active(_reference(metadata), timeout=PATIENCE_S).result)

    def stream(self, **metadata: str) -> Any:
        """An iterator of responses, which `cancel` ends."""
        return self._stream(_reference(metadata), timeout=PATIENCE_S)

    def target(self, **metadata: str) -> int:
        (spec,) = self._specs(_reference(metadata), timeout=PATIENCE_S).metricSpecs
        assert (spec.metricName, spec.targetSizeFloat) == (METRIC, spec.targetSize)
        return int(spec.targetSize)

    def backlog(self, metric: str = METRIC, **metadata: str) -> int:
        request = _CLASSES["GetMetricsRequest"](scaledObjectRef=_reference(metadata), metricName=metric)
        (value,) = self._metrics(request, timeout=PATIENCE_S).metricValues
        assert (value.metricName, value.metricValueFloat) == (METRIC, value.metricValue)
        return int(value.metricValue)


def _reference(metadata: Mapping[str, str]) -> Any:
    sent = {"scalerAddress": "pok-scaler:9467", **metadata}
    return _CLASSES["ScaledObjectRef"](name="orders-worker", namespace="default", scalerMetadata=sent)


@contextmanager
def keda_at(address: str, credentials: grpc.ChannelCredentials | None = None) -> Iterator[Keda]:
    made = grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials)
    with made as channel:
        yield Keda(channel)


@contextmanager
def a_scaler(
    admin: AdminClient | None = None,
    tls: ScalerTls | None = None,
    *,
    interval_s: float = 0.4,
    make: Callable[[Services], Gatherer] = Gatherer,
) -> Iterator[str]:
    """The address of a scaler in this process; without `admin` it is not connected. `make` gives what gathers."""
    gatherer = BacklogGatherer(interval_s)
    server = ScalerServer("127.0.0.1", 0, gatherer, tls or ScalerTls())
    try:
        if admin is not None:
            gatherer.connect(SharedGatherer(admin.node, make=make), admin)
        yield f"127.0.0.1:{server.port}"
    finally:
        server.close(Deadline.after(10))
        gatherer.close(Deadline.after(10))
