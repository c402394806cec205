# %% [markdown]
# # What is left of the orders
#
# A look at a subscription from a notebook: how much its consumers have not dealt with, by customer, and then what is to
# be written off, acknowledged for them. Cells are marked `# %%` (VS Code, Spyder, Jupytext); as a plain script:
#
#     python examples/spark/notebook.py kafka://localhost:9092 orders
#
# It needs `pip install 'pulsar-on-kafka[spark]'`, a broker (`pok standalone`), and makes its topic itself.

# %% A topic with orders, of which a consumer dealt with some
from __future__ import annotations

import sys

from pyspark.sql import functions as F  # noqa: N812

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.schema import AvroSchema, Integer, Record, String
from pulsar_on_kafka.spark import acknowledge, read_pulsar, session

service_url = sys.argv[1] if len(sys.argv) > 1 else "kafka://localhost:9092"
topic = sys.argv[2] if len(sys.argv) > 2 else "orders-of-a-notebook"


class Order(Record):
    customer = String(required=True)
    cents = Integer(required=True)


client = pulsar.Client(service_url)
consumer = client.subscribe(
    topic, "billing", consumer_type=pulsar.ConsumerType.Shared, schema=AvroSchema(Order),
    initial_position=pulsar.InitialPosition.Earliest,
)  # fmt: skip
producer = client.create_producer(topic, schema=AvroSchema(Order))
for number in range(90):
    producer.send(Order(customer=f"customer {number % 3}", cents=100 * number))
for _ in range(60):
    message = consumer.receive(10_000)
    if message.value().customer != "customer 2":  # who is not billed today
        consumer.acknowledge(message)
client.close()

# %% The same as a DataFrame: the schema's fields are its columns
spark = session()
orders = read_pulsar(spark, service_url=service_url, topic=topic, subscription="billing")
orders.printSchema()

# %% Who waits, and for how much
waiting = orders.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("cents").alias("cents")).sort("customer")
waiting.show()

# %% Small sums are written off: acknowledged on the subscription, so that no consumer gets them
small = orders.where("cents < 2000")
written_off = acknowledge(small, service_url=service_url, topic=topic, subscription="billing")
left = read_pulsar(spark, service_url=service_url, topic=topic, subscription="billing").count()
print(f"{written_off} orders are written off, {left} are left")
