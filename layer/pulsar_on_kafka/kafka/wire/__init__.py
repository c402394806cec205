"""A client of Kafka's protocol for requests that librdkafka lacks, or sends for one group at a time only.

`groups.group_members` uses it. Memberships of many groups and fetch sessions, which come next, use the other messages,
and the connections for heartbeats and waiting requests.
"""
