import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;
import org.apache.pulsar.client.api.transaction.Transaction;

/** What a program on Pulsar's Java client does: each command prints a line for each thing that it saw. */
public class Program {
    private static final int PATIENCE_S = 60;

    public static class Order {
        public int number;
        public String item;
    }

    public static void main(String[] arguments) throws Exception {
        run(arguments);
        System.exit(0);  // threads of the client may live on
    }

    private static void run(String[] arguments) throws Exception {
        String command = arguments[1];
        String topic = arguments[2];
        try (PulsarClient client = PulsarClient.builder()
                .serviceUrl(arguments[0])
                .enableTransaction(command.equals("transaction"))
                .operationTimeout(PATIENCE_S, TimeUnit.SECONDS)
                .build()) {
            switch (command) {
                case "produce" -> produce(client, topic, Integer.parseInt(arguments[3]), arguments[4].equals("batches"));
                case "consume" -> consume(client, topic, SubscriptionType.valueOf(arguments[4]), Integer.parseInt(arguments[3]));
                case "read" -> read(client, topic, Integer.parseInt(arguments[3]));
                case "view" -> view(client, topic);
                case "schema" -> schema(client, topic, Integer.parseInt(arguments[3]));
                case "flow" -> flow(client, topic, arguments[3], SubscriptionType.valueOf(arguments[4]));
                case "transaction" -> transaction(client, topic, arguments[3]);
                default -> throw new IllegalArgumentException(command);
            }
        }
    }

    /** Sends so many messages with keys and properties, in batches or one by one. */
    private static void produce(PulsarClient client, String topic, int messages, boolean batches) throws Exception {
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(batches).create()) {
            for (int number = 0; number < messages; number++) {
                producer.newMessage()
                        .key("key-" + number % 3)
                        .property("number", "" + number)
                        .value(("" + number).getBytes(StandardCharsets.UTF_8))
                        .sendAsync();
            }
            producer.flush();
            say("sent " + messages);
        }
    }

    /** Refuses each message once and acknowledges it when it comes again. */
    private static void consume(PulsarClient client, String topic, SubscriptionType type, int messages) throws Exception {
        try (Consumer<byte[]> consumer = client.newConsumer()
                .topic(topic)
                .subscriptionName("java")
                .subscriptionType(type)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                .subscribe()) {
            for (int acknowledged = 0; acknowledged < messages;) {
                Message<byte[]> message = next(consumer);
                if (message.getRedeliveryCount() == 0) {
                    consumer.negativeAcknowledge(message);
                    continue;
                }
                consumer.acknowledge(message);
                acknowledged++;
                say(text(message) + " " + message.getKey() + " " + message.getProperty("number") + " " + message.getRedeliveryCount());
            }
        }
    }

    private static void read(PulsarClient client, String topic, int messages) throws Exception {
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
            for (int number = 0; number < messages; number++) {
                say(text(reader.readNext(PATIENCE_S, TimeUnit.SECONDS)));
            }
            say("more " + reader.hasMessageAvailable());
        }
    }

    private static void view(PulsarClient client, String topic) throws Exception {
        try (TableView<byte[]> view = client.newTableView().topic(topic).create()) {
            TreeMap<String, String> held = new TreeMap<>();
            view.forEach((key, value) -> held.put(key, new String(value, StandardCharsets.UTF_8)));
            held.forEach((key, value) -> say(key + " " + value));
        }
    }

    /** Sends orders in Avro and receives them, also by a consumer that takes whatever schema there is. */
    private static void schema(PulsarClient client, String topic, int messages) throws Exception {
        try (Consumer<Order> typed = client.newConsumer(Schema.AVRO(Order.class)).topic(topic).subscriptionName("typed").subscribe();
                var any = client.newConsumer(Schema.AUTO_CONSUME()).topic(topic).subscriptionName("any").subscribe();
                Producer<Order> producer = client.newProducer(Schema.AVRO(Order.class)).topic(topic).create()) {
            for (int number = 0; number < messages; number++) {
                Order order = new Order();
                order.number = number;
                order.item = "item-" + number;
                producer.send(order);
            }
            for (int number = 0; number < messages; number++) {
                Message<Order> one = typed.receive(PATIENCE_S, TimeUnit.SECONDS);
                var generic = any.receive(PATIENCE_S, TimeUnit.SECONDS).getValue();
                say(one.getValue().number + " " + one.getValue().item + " " + generic.getField("number"));
            }
        }
    }

    /** Takes one message of the topic, sends it on to another one, and commits or aborts both. */
    private static void transaction(PulsarClient client, String topic, String outcome) throws Exception {
        try (Consumer<byte[]> consumer = client.newConsumer()
                        .topic(topic)
                        .subscriptionName("java")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .subscribe();
                Producer<byte[]> producer = client.newProducer()
                        .topic(topic + "-out")
                        .sendTimeout(0, TimeUnit.SECONDS)
                        .create()) {
            Message<byte[]> message = next(consumer);
            Transaction begun = client.newTransaction().withTransactionTimeout(PATIENCE_S, TimeUnit.SECONDS).build().get();
            producer.newMessage(begun).value(message.getValue()).send();
            consumer.acknowledgeAsync(message.getMessageId(), begun).get();
            if (outcome.equals("commit")) {
                begun.commit().get();
            } else {
                begun.abort().get();
            }
            say(outcome + " " + text(message));
        }
    }

    /** Sends numbers until standard input ends, and says when each came; Failover acknowledges cumulatively. */
    private static void flow(PulsarClient client, String topic, String subscription, SubscriptionType type) throws Exception {
        try (Consumer<byte[]> consumer = client.newConsumer()
                        .topic(topic)
                        .subscriptionName(subscription)
                        .subscriptionType(type)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .subscribe();
                Producer<byte[]> producer = client.newProducer()
                        .topic(topic)
                        .sendTimeout(0, TimeUnit.SECONDS)
                        .blockIfQueueFull(true)
                        .create()) {
            AtomicInteger sent = new AtomicInteger();
            AtomicInteger failed = new AtomicInteger();
            CountDownLatch done = new CountDownLatch(1);
            new Thread(() -> {
                try {
                    while (System.in.available() == 0) {
                        String text = subscription + " " + sent.getAndIncrement();
                        producer.sendAsync(text.getBytes(StandardCharsets.UTF_8))
                                .whenComplete((id, failure) -> failed.addAndGet(failure == null ? 0 : 1));
                        Thread.sleep(3);
                    }
                    producer.flush();
                } catch (Exception failure) {
                    failed.incrementAndGet();
                }
                done.countDown();
            }).start();
            Set<Integer> seen = new HashSet<>();
            while (done.getCount() > 0 || seen.size() < sent.get()) {
                Message<byte[]> message = consumer.receive(500, TimeUnit.MILLISECONDS);
                if (message == null) {
                    continue;
                }
                String[] words = text(message).split(" ");
                if (words[0].equals(subscription)) {
                    seen.add(Integer.valueOf(words[1]));
                    say("came " + System.currentTimeMillis() + " " + words[1]);
                }
                if (type == SubscriptionType.Failover) {
                    consumer.acknowledgeCumulative(message);
                } else {
                    consumer.acknowledge(message);
                }
            }
            say("sent " + sent.get() + " " + failed.get());
        }
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

    private static void say(String line) {
        System.out.println("> " + line);
    }
}
