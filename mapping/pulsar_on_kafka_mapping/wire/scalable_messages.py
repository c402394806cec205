"""The messages that Pulsar 5 adds for its V5 clients, which see each topic as a layout of segments.

A segment covers a range of the 65,536 hash slots; both ends of a range are inclusive. Source: the classes of
`org.apache.pulsar.common.api.proto` of pulsar-common 5.0.1, except for the names of fields.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

SCALABLE_MESSAGES: Final = """\
Segment             1 uint64 segment_id!  2 uint32 hash_start!  3 uint32 hash_end!  4 int32 state!
                    5 uint64 parent_ids*  6 uint64 child_ids*  7 uint64 created_at_epoch!  8 uint64 sealed_at_epoch
                    9 uint64 created_at_ms!  10 uint64 sealed_at_ms  11 string legacy_topic_name
                    12 uint32 entry_bucket_splits*
SegmentBroker       1 uint64 segment_id!  2 string broker_url!  3 string broker_url_tls
TopicDag            1 uint64 epoch!  2 Segment segments*  3 SegmentBroker segment_brokers*
                    4 string controller_broker_url  5 string controller_broker_url_tls
BucketRange         1 uint32 start!  2 uint32 end!
AssignedSegment     1 uint64 segment_id!  2 uint32 hash_start!  3 uint32 hash_end!  4 string segment_topic!
                    5 BucketRange bucket_ranges*
Assignment          1 uint64 layout_epoch!  2 AssignedSegment segments*
ScalableTopicLookup  1 uint64 session_id!  2 string topic!  3 bool create_if_missing
ScalableTopicUpdate  1 uint64 session_id!  2 TopicDag dag  3 int32 error  4 string message
                    5 string resolved_topic_name
ScalableTopicClose  1 uint64 session_id!
ScalableTopicSubscribe  1 uint64 request_id!  2 string topic!  3 string subscription!  4 string consumer_name!
                    5 uint64 consumer_id!  6 int32 consumer_type
ScalableTopicSubscribeResponse  1 uint64 request_id!  2 int32 error  3 string message  4 Assignment assignment
ScalableTopicAssignmentUpdate  1 uint64 consumer_id!  2 Assignment assignment!
ScalableTopicUnsubscribe  1 uint64 request_id!  2 uint64 consumer_id!
TopicNames          1 string topics*
TopicNamesDiff      1 string added*  2 string removed*
WatchScalableTopics  1 uint64 watch_id!  2 string namespace!  3 KeyValue property_filters*  4 string current_hash
WatchScalableTopicsUpdate  1 uint64 watch_id!  2 TopicNames snapshot  3 TopicNamesDiff diff  4 int32 error
                    5 string message
WatchScalableTopicsClose  1 uint64 watch_id!
TcAssignment        1 uint64 tc_id!  2 string broker_service_url  3 string broker_service_url_tls
TcAssignments       1 uint32 parallelism!  2 TcAssignment assignments*
WatchTcAssignments  1 uint64 watch_id!
WatchTcAssignmentsUpdate  1 uint64 watch_id!  2 TcAssignments snapshot  3 int32 error  4 string message
WatchTcAssignmentsClose  1 uint64 watch_id!
"""
"""In the form of `commands._MESSAGES`."""

TLS_SUFFIX: Final = "_tls"
"""Ends the names of fields for addresses with TLS."""


class SegmentState(IntEnum):
    """The state of a segment: producers write to active segments only, consumers read both."""

    ACTIVE = 0
    SEALED = 1


class ScalableConsumerType(IntEnum):
    """The kind of a V5 consumer that shares a topic's segments with the other members of its group."""

    STREAM = 0
    CHECKPOINT = 1
