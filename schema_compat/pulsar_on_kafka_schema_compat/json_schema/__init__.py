"""The JSON Schema checker (draft 4 to 2020-12) decides whether a reader's document allows everything that a writer's
allows.

The rules are Confluent's under its strict policy, and Apicurio's for the keywords that Confluent does not compare;
where both would accept a document that lets an old value fail, this package refuses. Two of their liberties remain: a
newly required property with a `default` is accepted, and so is a further `oneOf` branch that overlaps with another.
"""
