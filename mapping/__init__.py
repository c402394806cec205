"""The mappings translate between Pulsar's world and Kafka's: names, ids, records, keys. No I/O, no threads, no clock."""

if __name__ == "mapping":
    from pulsar_on_kafka.base.folder_names import redirect

    redirect(__name__)
