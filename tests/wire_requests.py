"""A request of each kind of the wire client, with the fields that Kafka must read from it."""

from __future__ import annotations

from typing import Any, Final

from pulsar_on_kafka.kafka.wire.cluster_messages import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from pulsar_on_kafka.kafka.wire.fetch_messages import FetchRequest, PartitionToFetch
from pulsar_on_kafka.kafka.wire.fields import WireRequest
from pulsar_on_kafka.kafka.wire.group_messages import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    SyncGroupRequest,
)
from pulsar_on_kafka.kafka.wire.offset_messages import (
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetQuery,
    OffsetToCommit,
)
from pulsar_on_kafka.kafka.wire.sasl_messages import SaslAuthenticateRequest, SaslHandshakeRequest

_MEMBER: Final = {"GroupId": "g", "GenerationId": 7, "MemberId": "mé"}
_COMMITS: Final = (OffsetToCommit(0, 2**40, "bits"), OffsetToCommit(3, 5, None, 9))
_ID: Final = bytes(range(16))
_FETCHED: Final = PartitionToFetch(2, 2**40, 1024, current_leader_epoch=4, last_fetched_epoch=3)

REQUESTS: Final[list[tuple[WireRequest[Any], dict[str, Any]]]] = [
    (
        ApiVersionsRequest("pulsar-on-kafka", "0.2.0"),
        {"ClientSoftwareName": "pulsar-on-kafka", "ClientSoftwareVersion": "0.2.0"},
    ),
    (
        MetadataRequest(("a", "b" * 200), (_ID,)),
        {
            "Topics": [
                {"TopicId": bytes(16), "Name": "a"},
                {"TopicId": bytes(16), "Name": "b" * 200},
                {"TopicId": _ID, "Name": None},
            ],
            "AllowAutoTopicCreation": False,
            "IncludeTopicAuthorizedOperations": False,
        },
    ),
    (FindCoordinatorRequest(("g", "h" * 127)), {"KeyType": 0, "CoordinatorKeys": ["g", "h" * 127]}),
    (
        JoinGroupRequest("g", 6000, 60000, "mé", (("cooperative-sticky", b"\1\2"), ("range", b""))),
        {
            "GroupId": "g",
            "SessionTimeoutMs": 6000,
            "RebalanceTimeoutMs": 60000,
            "MemberId": "mé",
            "GroupInstanceId": None,
            "ProtocolType": "consumer",
            "Protocols": [
                {"Name": "cooperative-sticky", "Metadata": b"\1\2"},
                {"Name": "range", "Metadata": b""},
            ],
        },
    ),
    (
        SyncGroupRequest("g", 7, "mé", (("mé", b"\3"),), "i"),
        {**_MEMBER, "GroupInstanceId": "i", "Assignments": [{"MemberId": "mé", "Assignment": b"\3"}]},
    ),
    (HeartbeatRequest("g", 7, "mé", "i"), {**_MEMBER, "GroupInstanceId": "i"}),
    (
        LeaveGroupRequest("g", (LeavingMember("mé", "i", "dead"), LeavingMember("n"))),
        {
            "GroupId": "g",
            "Members": [
                {"MemberId": "mé", "GroupInstanceId": "i", "Reason": "dead"},
                {"MemberId": "n", "GroupInstanceId": None, "Reason": None},
            ],
        },
    ),
    (DescribeGroupsRequest(("g", "h")), {"Groups": ["g", "h"], "IncludeAuthorizedOperations": False}),
    (
        OffsetCommitRequest("g", 7, "mé", (("t", _COMMITS), ("u", ()))),
        {
            "GroupId": "g",
            "GenerationIdOrMemberEpoch": 7,
            "MemberId": "mé",
            "GroupInstanceId": None,
            "Topics": [
                {
                    "Name": "t",
                    "Partitions": [
                        {
                            "PartitionIndex": 0,
                            "CommittedOffset": 2**40,
                            "CommittedLeaderEpoch": -1,
                            "CommittedMetadata": "bits",
                        },
                        {
                            "PartitionIndex": 3,
                            "CommittedOffset": 5,
                            "CommittedLeaderEpoch": 9,
                            "CommittedMetadata": None,
                        },
                    ],
                },
                {"Name": "u", "Partitions": []},
            ],
        },
    ),
    (
        OffsetFetchRequest((("g", (("t", (0, 3)),)), ("h", None)), require_stable=False),
        {
            "Groups": [
                {"GroupId": "g", "Topics": [{"Name": "t", "PartitionIndexes": [0, 3]}]},
                {"GroupId": "h", "Topics": None},
            ],
            "RequireStable": False,
        },
    ),
    (
        ListOffsetsRequest((("t", (OffsetQuery(2, -2), OffsetQuery(3, 10**12, 4))),), 1),
        {
            "ReplicaId": -1,
            "IsolationLevel": 1,
            "Topics": [
                {
                    "Name": "t",
                    "Partitions": [
                        {"PartitionIndex": 2, "CurrentLeaderEpoch": -1, "Timestamp": -2},
                        {"PartitionIndex": 3, "CurrentLeaderEpoch": 4, "Timestamp": 10**12},
                    ],
                }
            ],
        },
    ),
    (
        FetchRequest(5000, 1, 2**20, ((_ID, (_FETCHED,)),), ((_ID, (5,)),), 77, 3, 1, "r"),
        {
            "ReplicaId": -1,
            "MaxWaitMs": 5000,
            "MinBytes": 1,
            "MaxBytes": 2**20,
            "IsolationLevel": 1,
            "SessionId": 77,
            "SessionEpoch": 3,
            "Topics": [
                {
                    "TopicId": _ID,
                    "Partitions": [
                        {
                            "Partition": 2,
                            "CurrentLeaderEpoch": 4,
                            "FetchOffset": 2**40,
                            "LastFetchedEpoch": 3,
                            "LogStartOffset": -1,
                            "PartitionMaxBytes": 1024,
                        }
                    ],
                }
            ],
            "ForgottenTopicsData": [{"TopicId": _ID, "Partitions": [5]}],
            "RackId": "r",
        },
    ),
    (SaslHandshakeRequest("PLAIN"), {"Mechanism": "PLAIN"}),
    (SaslAuthenticateRequest(b"\0user\0secret"), {"AuthBytes": b"\0user\0secret"}),
]
