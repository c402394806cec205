"""PROTOBUF_NATIVE schemas: does a reader's message keep everything that a writer's message puts on the wire?"""
