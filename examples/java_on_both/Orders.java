import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.schema.GenericRecord;

/**
 * A program on Pulsar's Java client. It names a service URL and nothing else of where it runs, and prints the same on
 * every service: no ids, no times, and what arrives in no order of its own it sorts. Its topics are new each time.
 */
public class Orders {
    private static final int ORDERS = 12;
    private static final String[] COLOURS = {"red", "green", "blue"};
    private static final int PATIENCE_S = 60;
    private static final String TOPIC = "persistent://public/default/orders-" + UUID.randomUUID();

    public static void main(String[] arguments) throws Exception {
        try (PulsarClient client = PulsarClient.builder()
                .serviceUrl(arguments[0])
                .operationTimeout(PATIENCE_S, TimeUnit.SECONDS)
                .build()) {
            produce(client, 0, ORDERS / 2, false);
            produce(client, ORDERS / 2, ORDERS, true);
            refuse(client);
            keepOrder(client);
            read(client);
            describe(client);
        }
        System.exit(0);  // threads of the client may live on
    }

    /** Orders of these numbers, each in an entry of its own, or in batches. */
    private static void produce(PulsarClient client, int from, int to, boolean batches) throws Exception {
        try (Producer<byte[]> producer = client.newProducer().topic(TOPIC).enableBatching(batches).create()) {
            for (int number = from; number < to; number++) {
                producer.newMessage()
                        .key(COLOURS[number % COLOURS.length])
                        .property("number", "" + number)
                        .value(("order " + number).getBytes(StandardCharsets.UTF_8))
                        .sendAsync();
            }
            producer.flush();
            say("sent " + (to - from) + ", the last sequence id is " + producer.getLastSequenceId());
        }
    }

    /** Every third order is refused when it comes for the first time; the others are acknowledged meanwhile. */
    private static void refuse(PulsarClient client) throws Exception {
        TreeMap<Integer, String> done = new TreeMap<>();
        try (Consumer<byte[]> consumer = consumer(client, "shared", SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                .subscribe()) {
            while (done.size() < ORDERS) {
                Message<byte[]> message = next(consumer);
                int number = Integer.parseInt(message.getProperty("number"));
                if (number % 3 == 0 && message.getRedeliveryCount() == 0) {
                    consumer.negativeAcknowledge(message);
                } else {
                    consumer.acknowledge(message);
                    done.putIfAbsent(number, text(message) + ", redelivered " + message.getRedeliveryCount() + " times");
                }
            }
            try (Consumer<byte[]> second = consumer(client, "shared", SubscriptionType.Exclusive).subscribe()) {
                say("a second type of subscription: " + second.getSubscription() + " is opened");
            } catch (PulsarClientException refused) {
                say("a second type of subscription: " + refused.getClass().getSimpleName());
            }
        }
        done.values().forEach(Orders::say);
    }

    /** More orders: those of one colour come in their order, all of them to one of two consumers. */
    private static void keepOrder(PulsarClient client) throws Exception {
        Map<String, List<String>> numbers = new TreeMap<>();
        Map<String, TreeSet<String>> consumers = new TreeMap<>();
        try (Consumer<byte[]> one = keyed(client, "1"); Consumer<byte[]> two = keyed(client, "2")) {
            produce(client, ORDERS, 2 * ORDERS, false);
            List<Consumer<byte[]>> both = List.of(one, two);
            long givesUpAt = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
            for (int seen = 0; seen < ORDERS;) {
                if (System.nanoTime() > givesUpAt) {
                    throw new IllegalStateException(seen + " of " + ORDERS + " came within " + PATIENCE_S + " s");
                }
                for (Consumer<byte[]> consumer : both) {
                    Message<byte[]> message = consumer.receive(100, TimeUnit.MILLISECONDS);
                    if (message != null) {
                        numbers.computeIfAbsent(message.getKey(), key -> new ArrayList<>()).add(message.getProperty("number"));
                        consumers.computeIfAbsent(message.getKey(), key -> new TreeSet<>()).add(consumer.getConsumerName());
                        consumer.acknowledge(message);
                        seen++;
                    }
                }
            }
        }
        numbers.forEach((key, found) ->
                say(key + ": " + String.join(" ", found) + ", at " + consumers.get(key).size() + " consumer"));
    }

    private static void read(PulsarClient client) throws Exception {
        try (Reader<byte[]> reader = client.newReader().topic(TOPIC).startMessageId(MessageId.earliest).create()) {
            List<String> found = new ArrayList<>();
            while (reader.hasMessageAvailable()) {
                found.add(new String(reader.readNext(PATIENCE_S, TimeUnit.SECONDS).getValue(), StandardCharsets.UTF_8));
            }
            say("read " + found);
        }
    }

    public static class Order {
        public int number;
        public String colour;
    }

    public static class Colourless {
        public double number;
    }

    /** Orders with a schema, seen by a consumer that knows none; a schema that does not fit is refused. */
    private static void describe(PulsarClient client) throws Exception {
        String topic = TOPIC + "-described";
        try (Producer<Order> producer = client.newProducer(Schema.AVRO(Order.class)).topic(topic).create();
                Consumer<GenericRecord> consumer = client.newConsumer(Schema.AUTO_CONSUME())
                        .topic(topic)
                        .subscriptionName("any")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .subscribe()) {
            Order order = new Order();
            order.number = 1;
            order.colour = "red";
            producer.send(order);
            GenericRecord record = consumer.receive(PATIENCE_S, TimeUnit.SECONDS).getValue();
            say(record.getSchemaType() + ": " + record.getField("number") + " " + record.getField("colour"));
            try (Producer<Colourless> wrong = client.newProducer(Schema.AVRO(Colourless.class)).topic(topic).create()) {
                say("a schema that does not fit: taken");
            } catch (PulsarClientException refused) {
                say("a schema that does not fit: " + refused.getClass().getSimpleName());
            }
        }
    }

    private static Consumer<byte[]> keyed(PulsarClient client, String name) throws Exception {
        return consumer(client, "keys", SubscriptionType.Key_Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Latest)
                .consumerName(name)
                .subscribe();
    }

    private static ConsumerBuilder<byte[]> consumer(PulsarClient client, String subscription, SubscriptionType type) {
        return client.newConsumer()
                .topic(TOPIC)
                .subscriptionName(subscription)
                .subscriptionType(type)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    private static Message<byte[]> next(Consumer<byte[]> consumer) throws Exception {
        Message<byte[]> message = consumer.receive(PATIENCE_S, TimeUnit.SECONDS);
        if (message == null) {
            throw new IllegalStateException("nothing came within " + PATIENCE_S + " s");
        }
        return message;
    }

    private static String text(Message<byte[]> message) {
        return new String(message.getValue(), StandardCharsets.UTF_8);
    }

    /** The client's log goes to the same place: these lines begin so. */
    private static void say(String line) {
        System.out.println("> " + line);
    }
}
