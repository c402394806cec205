"""The PROTOBUF_NATIVE checker decides whether a reader's message keeps everything that a writer's message puts on the
wire.
"""
