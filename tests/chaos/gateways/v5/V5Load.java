import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.PulsarClientException;
import org.apache.pulsar.client.api.v5.StreamConsumer;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.schema.Schema;

/** A V5 producer of numbered messages under keys, or one stream consumer. Writes a line for each event. */
public class V5Load {
    private static final int KEYS = 16;
    private static final int SENDERS = 4;
    private static final int ACKNOWLEDGE_EACH = 20;

    private static volatile boolean ending = false;

    public static void main(String[] arguments) throws Exception {
        Thread input = new Thread(V5Load::awaitEnd);
        input.setDaemon(true);
        input.start();
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[1]).build()) {
            if (arguments[0].equals("produce")) {
                produce(client, arguments[2]);
            } else {
                consume(client, arguments[2], arguments[3]);
            }
            report("ended");
        } catch (Exception failure) {
            report("failed " + failure);
            failure.printStackTrace();
        }
        System.exit(0);
    }

    private static void awaitEnd() {
        try {
            while (System.in.read() >= 0) {
                ending = true;
            }
        } catch (java.io.IOException closed) {
            // the test is over
        }
        ending = true;
    }

    private static void produce(PulsarClient client, String topic) throws Exception {
        try (var producer = client.newProducer(Schema.string()).topic(topic).producerName("p").create()) {
            List<Thread> senders = new ArrayList<>();
            for (int sender = 0; sender < SENDERS; sender++) {
                int first = sender;
                Thread thread = new Thread(() -> {
                    try {
                        for (int number = 0; !ending; number++) {
                            for (int key = first; key < KEYS; key += SENDERS) {
                                String text = "k" + key + " " + number;
                                producer.newMessage().key("k" + key).value(text).send();
                                report("sent " + text);
                            }
                            Thread.sleep(ThreadLocalRandom.current().nextInt(10));
                        }
                    } catch (Exception failure) {
                        report("failed " + failure);
                        failure.printStackTrace();
                    }
                });
                thread.start();
                senders.add(thread);
            }
            for (Thread thread : senders) {
                thread.join();
            }
        }
    }

    private static void consume(PulsarClient client, String topic, String name) throws Exception {
        try (var consumer = subscribe(client, topic, name)) {
            report("up");
            Message<String> last = null;
            int received = 0;
            while (!ending) {
                Message<String> message = consumer.receive(Duration.ofMillis(100));
                if (message != null) {
                    report("got " + message.value());
                    last = message;
                    received++;
                }
                if (last != null && (message == null || received >= ACKNOWLEDGE_EACH)) {
                    consumer.acknowledgeCumulative(last.id());
                    report("acked");
                    last = null;
                    received = 0;
                }
            }
            if (last != null) {
                consumer.acknowledgeCumulative(last.id());
                report("acked");
            }
        }
    }

    /** As applications do it: a builder does not try another address, nor again. */
    private static StreamConsumer<String> subscribe(PulsarClient client, String topic, String name) throws Exception {
        while (true) {
            try {
                return client.newStreamConsumer(Schema.string()).topic(topic).subscriptionName("s").consumerName(name)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST).subscribe();
            } catch (PulsarClientException failure) {
                report("refused " + failure);
                failure.printStackTrace();
                if (ending) {
                    throw failure;
                }
                Thread.sleep(500);
            }
        }
    }

    private static void report(String event) {
        System.out.println("@" + System.nanoTime() + " " + event);
    }
}
