"""The Avro checker decides whether a reader's schema can read what a writer's wrote, as Pulsar's brokers do.

They ask Avro's `SchemaValidator`, and so the names of records do not matter, and an enum may lose symbols. Where that
depends on the order of a union's branches, or fails for types that only contain themselves, we do not follow.
Source: Avro 1.11 `Resolver`, `ResolvingGrammarGenerator`, `Schema.Parser`; Pulsar `AvroSchemaBasedCompatibilityCheck`.
"""
