"""The Avro checker decides whether a reader's schema can read a writer's data, as Pulsar's brokers do.

They use Avro's `SchemaValidator`, and so the names of records do not matter, and an enum may lose symbols. Where that
depends on the order of a union's branches, or fails for types that only contain themselves, this checker differs.
Source: Avro 1.11 `Resolver`, `ResolvingGrammarGenerator`, `Schema.Parser`; Pulsar `AvroSchemaBasedCompatibilityCheck`.
"""
