"""The mappings translate names, ids, records and keys between Pulsar and Kafka. No I/O, no threads, no clock."""

if __name__ == "mapping":
    from pulsar_on_kafka.base.folder_names import redirect

    redirect(__name__)
