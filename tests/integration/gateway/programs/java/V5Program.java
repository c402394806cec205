import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.pulsar.client.api.v5.Checkpoint;
import org.apache.pulsar.client.api.v5.CheckpointConsumer;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.PulsarClientBuilder;
import org.apache.pulsar.client.api.v5.QueueConsumer;
import org.apache.pulsar.client.api.v5.QueueConsumerBuilder;
import org.apache.pulsar.client.api.v5.Transaction;
import org.apache.pulsar.client.api.v5.auth.AuthenticationFactory;
import org.apache.pulsar.client.api.v5.config.BackoffPolicy;
import org.apache.pulsar.client.api.v5.config.DeadLetterPolicy;
import org.apache.pulsar.client.api.v5.config.ProducerAccessMode;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.config.TransactionPolicy;
import org.apache.pulsar.client.api.v5.schema.Schema;
import org.apache.pulsar.tls.TlsPolicy;

/**
 * What programs on Pulsar 5's V5 client do, in one JVM: each step prints a line with its name and what it saw. Some steps
 * ask the other side to do something and wait for a line.
 *
 * Arguments: the URL of a gateway, the namespace, the URL of a gateway with TLS, its authorities, a token. With -Dsteps=a,b
 * it plays these steps only.
 */
public class V5Program {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final Duration BRIEFLY = Duration.ofMillis(800);
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    private static PulsarClient client;
    private static QueueConsumer<String> growing;
    private static int sent;
    private static String namespace;

    public static class Order {
        public int number;
        public String item;

        public Order() {}

        public Order(int number, String item) {
            this.number = number;
            this.item = item;
        }
    }

    interface Step {
        Object play() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        namespace = arguments[1];
        client = builder(arguments[0]).transactionPolicy(TransactionPolicy.builder().timeout(PATIENCE).build()).build();
        step("keyed", V5Program::keyed);
        step("keyless", V5Program::keyless);
        step("exclusive", V5Program::exclusive);
        step("acknowledged", V5Program::acknowledged);
        step("delayed", V5Program::delayed);
        step("dead", V5Program::dead);
        step("restored", V5Program::restored);
        step("json", V5Program::json);
        step("refused", V5Program::refused);
        step("transactions", V5Program::transactions);
        step("missing", () -> client.newProducer(Schema.string()).topic("topic://public/missing/x").create());
        step("grown", V5Program::grown);
        step("lost", V5Program::lost);
        step("namespace", V5Program::namespace);
        step("drained", V5Program::drained);
        client.close();
        step("encrypted", () -> encrypted(arguments[2], arguments[3], arguments[4]));
        System.exit(0);  // threads of the client may live on
    }

    private static PulsarClientBuilder builder(String url) {
        return PulsarClient.builder().serviceUrl(url).operationTimeout(PATIENCE);
    }

    private static void step(String name, Step step) {
        if (!System.getProperty("steps", name).contains(name)) {
            return;
        }
        long begin = System.nanoTime();
        Object seen;
        try {
            seen = step.play();
        } catch (Throwable failure) {
            Throwable cause = failure;
            while ((cause instanceof CompletionException || cause instanceof ExecutionException) && cause.getCause() != null) {
                cause = cause.getCause();
            }
            seen = cause.getClass().getSimpleName();
            cause.printStackTrace();
        }
        say(name + " " + seen);
        System.out.printf("%s took %d ms%n", name, (System.nanoTime() - begin) / 1_000_000);
    }

    private static void say(String line) {
        System.out.println("> " + line);
        System.out.flush();
    }

    /** Asks the other side to do something, and waits until that is done. */
    private static void ask(String what) throws Exception {
        say("ask " + what);
        INPUT.readLine();
    }

    private static String topic(String name) {
        return "topic://" + namespace + "/" + name;
    }

    private static QueueConsumerBuilder<String> queue(String topic) {
        return client.newQueueConsumer(Schema.string())
                .topic(topic)
                .subscriptionName("q")
                .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                .negativeAckRedeliveryBackoff(BackoffPolicy.exponential(Duration.ofMillis(50), Duration.ofMillis(100)));
    }

    private static Message<String> next(QueueConsumer<String> consumer) throws Exception {
        Message<String> message = consumer.receive(PATIENCE);
        if (message == null) {
            throw new IllegalStateException("nothing came in " + PATIENCE);
        }
        return message;
    }

    /** So many values, each acknowledged; sorted. */
    private static Collection<String> values(QueueConsumer<String> consumer, int count) throws Exception {
        List<String> seen = new ArrayList<>();
        while (seen.size() < count) {
            Message<String> message = next(consumer);
            consumer.acknowledge(message.id());
            seen.add(message.value());
        }
        return new TreeSet<>(seen);
    }

    private static String segment(Object id) {
        return id.toString().replaceAll(".*segment=(\\d+).*", "$1");
    }

    /** The partitions of keys, which the other side created three of. */
    private static Object keyed() throws Exception {
        Map<String, String> segments = new TreeMap<>();
        try (Producer<String> producer = client.newProducer(Schema.string()).topic("persistent://" + namespace + "/three").create()) {
            for (String key : List.of("a", "k0", "k1", "order-1", "\u00e4", "\u65e5\u672c")) {
                segments.put(key, segment(producer.newMessage().key(key).value("of " + key).send()));
            }
        }
        return segments.values();
    }

    private static Object keyless() throws Exception {
        TreeSet<String> segments = new TreeSet<>();
        try (Producer<String> producer = client.newProducer(Schema.string()).topic(topic("keyless")).create()) {
            for (int number = 0; number < 8; number++) {
                segments.add(segment(producer.newMessage().value("v" + number).send()));
            }
        }
        return segments;
    }

    private static Object exclusive() throws Exception {
        try (Producer<String> producer = client.newProducer(Schema.string())
                .topic(topic("exclusive"))
                .accessMode(ProducerAccessMode.EXCLUSIVE)
                .create()) {
            producer.newMessage().key("k").value("alone").send();
            String other = "opened";
            try {
                client.newProducer(Schema.string()).topic(topic("exclusive")).accessMode(ProducerAccessMode.EXCLUSIVE).create();
            } catch (Exception failure) {
                other = failure.getClass().getSimpleName();
            }
            return other;
        }
    }

    /** Refuses one message once, and acknowledges all. A second consumer gets nothing. */
    private static Object acknowledged() throws Exception {
        List<String> seen = new ArrayList<>();
        try (QueueConsumer<String> consumer = queue("persistent://" + namespace + "/three").subscribe()) {
            for (int acknowledged = 0; acknowledged < 6;) {
                Message<String> message = next(consumer);
                if (message.value().equals("of k1") && message.redeliveryCount() == 0) {
                    consumer.negativeAcknowledge(message.id());
                    continue;
                }
                consumer.acknowledge(message.id());
                acknowledged++;
                seen.add(message.value() + "/" + message.redeliveryCount());
            }
        }
        try (QueueConsumer<String> consumer = queue("persistent://" + namespace + "/three").subscribe()) {
            seen.add("then " + consumer.receive(BRIEFLY));
        }
        return new TreeSet<>(seen);
    }

    private static Object delayed() throws Exception {
        try (QueueConsumer<String> consumer = queue(topic("delayed")).subscribe();
                Producer<String> producer = client.newProducer(Schema.string()).topic(topic("delayed")).create()) {
            producer.newMessage().value("later").deliverAfter(Duration.ofSeconds(1)).send();
            producer.newMessage().value("now").send();
            return next(consumer).value() + ", " + next(consumer).value();
        }
    }

    private static Object dead() throws Exception {
        DeadLetterPolicy policy = DeadLetterPolicy.builder().maxRedeliverCount(1).build();
        List<Integer> counts = new ArrayList<>();
        try (QueueConsumer<String> consumer = queue(topic("bad")).deadLetterPolicy(policy).subscribe();
                Producer<String> producer = client.newProducer(Schema.string()).topic(topic("bad")).create()) {
            producer.newMessage().key("k").value("bad").send();
            for (int delivery = 0; delivery < 2; delivery++) {
                Message<String> message = next(consumer);
                counts.add(message.redeliveryCount());
                consumer.negativeAcknowledge(message.id());
            }
            consumer.receive(BRIEFLY);  // the client sends a letter when it would get the message again
            try (QueueConsumer<byte[]> letters = client.newQueueConsumer(Schema.bytes())
                    .topic(topic("bad-DLQ"))
                    .subscriptionName("q")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                    .subscribe()) {
                Message<byte[]> letter = letters.receive(PATIENCE);
                return counts + " " + new String(letter.value());
            }
        }
    }

    private static Object restored() throws Exception {
        try (Producer<String> producer = client.newProducer(Schema.string()).topic(topic("checkpoints")).create()) {
            for (int number = 0; number < 6; number++) {
                producer.newMessage().key("k" + number).value("v" + number).send();
            }
        }
        TreeSet<String> first = new TreeSet<>();
        TreeSet<String> then = new TreeSet<>();
        byte[] saved;
        try (CheckpointConsumer<String> consumer = checkpoints(Checkpoint.earliest())) {
            while (first.size() < 3) {
                first.add(consumer.receive(PATIENCE).value());
            }
            saved = consumer.checkpoint().toByteArray();
        }
        try (CheckpointConsumer<String> consumer = checkpoints(Checkpoint.fromByteArray(saved))) {
            while (then.size() < 3) {
                then.add(consumer.receive(PATIENCE).value());
            }
        }
        TreeSet<String> all = new TreeSet<>(first);
        all.addAll(then);
        return first.size() + " and " + then.size() + " of " + all;
    }

    private static CheckpointConsumer<String> checkpoints(Checkpoint start) throws Exception {
        return client.newCheckpointConsumer(Schema.string()).topic(topic("checkpoints")).startPosition(start).create();
    }

    private static Object json() throws Exception {
        Schema<Order> schema = Schema.json(Order.class);
        try (Producer<Order> producer = client.newProducer(schema).topic(topic("json")).create();
                QueueConsumer<Order> consumer = client.newQueueConsumer(schema)
                        .topic(topic("json"))
                        .subscriptionName("q")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                        .subscribe()) {
            producer.newMessage().key("k").value(new Order(7, "seven")).send();
            Message<Order> message = consumer.receive(PATIENCE);
            consumer.acknowledge(message.id());
            return message.value().number + message.value().item;
        }
    }

    private static Object refused() throws Exception {
        try (Producer<Integer> producer = client.newProducer(Schema.int32()).topic(topic("json")).create()) {
            return producer.newMessage().value(5).send();
        }
    }

    private static Object transactions() throws Exception {
        try (Producer<String> producer = client.newProducer(Schema.string()).topic(topic("transactions")).create();
                QueueConsumer<String> consumer = queue(topic("transactions")).subscribe()) {
            producer.newMessage().key("k").value("first").send();
            Transaction committed = client.newTransaction();
            Message<String> message = next(consumer);
            consumer.acknowledge(message.id(), committed);
            producer.newMessage().key("a").value("committed 1").transaction(committed).send();
            producer.newMessage().key("b").value("committed 2").transaction(committed).send();
            committed.commit();
            Transaction aborted = client.newTransaction();
            producer.newMessage().key("a").value("aborted").transaction(aborted).send();
            aborted.abort();
            return committed.state() + " " + aborted.state() + " " + values(consumer, 2) + " " + consumer.receive(BRIEFLY);
        }
    }

    /** The other side adds partitions to a topic that has one. Waits until messages of the same producer go there. */
    private static Object grown() throws Exception {
        TreeSet<String> segments = new TreeSet<>();
        growing = queue(topic("grows")).subscribe();
        try (Producer<String> producer = client.newProducer(Schema.string()).topic(topic("grows")).create()) {
            segments.add(segment(producer.newMessage().value("v" + sent++).send()));
            String before = segments.toString();
            ask("grow");
            for (long end = System.nanoTime() + PATIENCE.toNanos(); segments.size() < 3 && System.nanoTime() < end;) {
                segments.add(segment(producer.newMessage().value("v" + sent++).send()));
            }
            return before + " " + segments;
        }
    }

    /** The consumer from before the topic grew gets what lies in all partitions. */
    private static Object drained() throws Exception {
        TreeSet<String> seen = new TreeSet<>();
        while (seen.size() < sent) {
            Message<String> message = next(growing);
            growing.acknowledge(message.id());
            seen.add(message.value());
        }
        growing.close();
        return "all";
    }

    /** The other side drops all connections. Producer and consumer go on. */
    private static Object lost() throws Exception {
        try (Producer<String> producer = client.newProducer(Schema.string()).topic(topic("lost")).create();
                QueueConsumer<String> consumer = queue(topic("lost")).subscribe()) {
            producer.newMessage().key("a").value("before").send();
            Collection<String> before = values(consumer, 1);
            ask("drop");
            producer.newMessage().key("a").value("after").send();
            Collection<String> after = values(consumer, 1);
            return before + " " + (after.equals(before) ? values(consumer, 1) : after);  // its acknowledgement may be lost
        }
    }

    /** Consumes from all topics of a namespace with a property, also from one that is created meanwhile. */
    private static Object namespace() throws Exception {
        try (QueueConsumer<String> consumer = client.newQueueConsumer(Schema.string())
                .namespace(namespace, new HashMap<>(Map.of("team", "billing")))
                .subscriptionName("n")
                .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                .subscribe()) {
            send("team-1");
            Collection<String> first = values(consumer, 1);
            ask("create");
            send("team-2");
            return first + " " + values(consumer, 1);
        }
    }

    private static void send(String name) throws Exception {
        try (Producer<String> producer = client.newProducer(Schema.string()).topic(topic(name)).create()) {
            producer.newMessage().value("in " + name).send();
        }
    }

    /** With TLS and a token; without the token the client is refused. */
    private static Object encrypted(String url, String authorities, String token) throws Exception {
        TlsPolicy tls = TlsPolicy.builder().trustCertsFilePath(authorities).build();
        String without = "served";
        try (PulsarClient stranger = builder(url).tlsPolicy(tls).operationTimeout(Duration.ofSeconds(1)).build()) {
            stranger.newProducer(Schema.string()).topic(topic("encrypted")).create();
        } catch (Exception failure) {
            without = "refused";
        }
        client = builder(url)
                .tlsPolicy(tls)
                .authentication(AuthenticationFactory.token(token))
                .transactionPolicy(TransactionPolicy.builder().timeout(PATIENCE).build())
                .build();
        try (QueueConsumer<String> consumer = queue(topic("encrypted")).subscribe();
                Producer<String> producer = client.newProducer(Schema.string()).topic(topic("encrypted")).create()) {
            Transaction transaction = client.newTransaction();
            producer.newMessage().key("k").value("sent").transaction(transaction).send();
            transaction.commit();
            return without + " " + values(consumer, 1);
        }
    }
}
