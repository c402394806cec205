# %% [markdown]
# # The delays of 2013, summed up exactly once
#
# The flights that left New York City in 2013 lie in a Pulsar topic on Kafka. A Spark stream sums up their delays by
# carrier into Parquet files, one for each micro-batch. In the middle its process is killed with -9, at the worst
# moment: a batch's file is written, and nobody knows of it. The job is started again. At the end the sums are those of
# the data frame, to the minute.
#
# Cells are marked `# %%` (VS Code, Spyder, Jupytext); as a plain script:
#
#     python examples/spark_delays.py                     all 336,776 flights, about a minute and a half
#     python examples/spark_delays.py --flights 20000     a sample
#     python examples/spark_delays.py --png delays.png    with the picture as a file
#     POK_BOOTSTRAP=host:9092 python examples/spark_delays.py    on a cluster of yours (a new topic, deleted at the end)
#
# It needs `pip install 'pulsar-on-kafka[examples]'`. The exit code is 1 if a sum disagrees.

# %% What is asked for
from __future__ import annotations

import argparse
import atexit
import secrets
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from flights import delays
from flights.data import load_flights
from flights.spark_view import started
from pandas import isna
from pyspark.sql import functions as F  # noqa: N812

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.embedded import ExternalBroker, open_broker

PARTITIONS = 4
BATCHES = 6
KILLED_IN = 2

parser = argparse.ArgumentParser(description="The delays of 2013, summed up by a Spark stream, exactly once.")
parser.add_argument("--flights", type=int, metavar="N", help="only a sample of N flights (1000 or more)")
parser.add_argument("--png", type=Path, metavar="FILE", help="draw the result into this file")
parser.add_argument("--broker", choices=["auto", "embedded", "docker", "external"], default="auto")
options, _ = parser.parse_known_args()  # a notebook's kernel has arguments of its own
if options.flights is not None and options.flights < 1000:
    parser.error(f"--flights {options.flights}: 1000 are the fewest that make {BATCHES} batches worth looking at")

# %% A broker and a topic
stack = ExitStack()
atexit.register(stack.close)
broker = stack.enter_context(open_broker(options.broker, progress=print))
service_url = f"kafka://{broker.bootstrap}"
topic = f"persistent://public/default/delays-{secrets.token_hex(3)}"
admin = stack.enter_context(AdminClient(service_url))
admin.create_partitioned_topic(topic, PARTITIONS)
if isinstance(broker, ExternalBroker):
    stack.callback(admin.delete_topic, topic, force=True)
admin.create_subscription(topic, delays.SUBSCRIPTION, from_earliest=True)
directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pok-delays-")))
lake, checkpoint = str(directory / "lake"), str(directory / "checkpoint")
print(f"topic {topic} on {service_url}, Parquet in {lake}")

# %% The flights, one message each, with an Avro schema
flights = load_flights(options.flights)
client = pulsar.Client(service_url)
producer = client.create_producer(topic, schema=delays.SCHEMA, block_if_queue_full=True, max_pending_messages=10_000)
columns = flights[["id", "carrier", "month", "dep_delay"]].astype(object).itertuples(index=False)
for number, carrier, month, delay in columns:
    known = None if isna(delay) else int(delay)
    flight = delays.Flight(id=int(number), carrier=carrier, month=int(month), delay=known)
    producer.send_async(flight, None, partition_key=carrier)
producer.flush()
client.close()
count = len(flights)
print(f"{count:,} flights are published")

# %% The job, in a process of its own, until its third batch kills it
most = -(-count // BATCHES)
arguments = [service_url, topic, lake, checkpoint, str(most)]
killed = subprocess.run(
    [sys.executable, "-m", "flights.delays", *arguments, str(KILLED_IN)],
    cwd=Path(delays.__file__).parents[1],
    start_new_session=True,
    check=False,
)
if killed.returncode != -signal.SIGKILL:
    raise SystemExit(f"the job was to die of SIGKILL in batch {KILLED_IN}, and ended with {killed.returncode}")
torn = Path(lake) / f"batch={KILLED_IN}"
first_attempt = {file.name for file in torn.glob("*.parquet")}
backlog = admin.subscription_stats(topic, delays.SUBSCRIPTION).backlog
print(
    f"killed with -9 in batch {KILLED_IN}: its file {', '.join(first_attempt)} is written, and all but the "
    f"{KILLED_IN * most:,} flights of the batches before it are unacknowledged ({backlog:,})"
)

# %% The job once more, here; it begins with the batch that nobody knows of
spark = stack.enter_context(started(directory / "notebook.log"))
delays.run(spark, *arguments[:-1], most)
second_attempt = {file.name for file in torn.glob("*.parquet")}
print(f"batch {KILLED_IN} was written again, as {', '.join(second_attempt)}, and counts once")

# %% The sums beside those of the data frame
sums = spark.read.parquet(lake).groupBy("carrier").agg(F.sum("flights"), F.sum("departed"), F.sum("minutes"))
found = {carrier: (flown, departed, minutes or 0) for carrier, flown, departed, minutes in sums.collect()}
truth = {
    str(carrier): (len(group), int(group.notna().sum()), int(group.sum()))
    for carrier, group in flights.groupby("carrier")["dep_delay"]
}
left_over = admin.subscription_stats(topic, delays.SUBSCRIPTION).backlog
print(f"{'carrier':8}{'flights':>10}{'departed':>10}{'minutes':>12}{'mean delay':>12}")
for carrier in sorted(truth):
    flown, departed, minutes = found.get(carrier, (0, 0, 0))
    mean = f"{minutes / departed:.1f}" if departed else ""
    mark = "" if found.get(carrier) == truth[carrier] else f"  DIFFERS: {truth[carrier]}"
    print(f"{carrier:8}{flown:>10,}{departed:>10,}{minutes or 0:>12,}{mean:>12}{mark}")
agree = [found == truth, left_over == 0, first_attempt != second_attempt, backlog == count - KILLED_IN * most]
right = all(agree)
print(f"{left_over:,} flights are unacknowledged")
print("Exactly once: every sum is that of the data frame." if right else "Something DIFFERS.")

# %% The picture
if options.png is not None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib.figure import Figure

    carriers = sorted(
        (carrier for carrier in found if found[carrier][1]), key=lambda name: found[name][2] / found[name][1]
    )
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    axes.barh(carriers, [found[name][2] / found[name][1] for name in carriers], color="#00695c", label="by the stream")
    true_means = [truth[name][2] / truth[name][1] for name in carriers]
    axes.plot(true_means, carriers, "|", color="#f6a623", ms=14, mew=3, label="in the data frame")
    axes.set_xlabel("mean delay of departure, minutes")
    axes.set_title(f"{count:,} flights of 2013, summed up by a stream that was killed in the middle")
    axes.legend(loc="lower right")
    options.png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.png, dpi=140)
    print(f"the picture: {options.png}")

# %% The end
stack.close()
if __name__ == "__main__" and not right:
    sys.exit(1)
