import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * Messages of Pulsar's own Java client: sent one after the other, 100,000 under way at most, until the last receipt.
 *
 * Run from its source: java -cp 'libs/*' PulsarProduce.java URL TOPIC MESSAGES WARM_UP SIZE BATCHING. What warms up goes
 * to the same topic before, and is not counted. Prints one line of JSON that begins with RESULT.
 */
public final class PulsarProduce {
    public static void main(String[] arguments) throws Exception {
        byte[] payload = new byte[Integer.parseInt(arguments[4])];
        Arrays.fill(payload, (byte) 'x');
        int messages = Integer.parseInt(arguments[2]);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
                Producer<byte[]> producer = client.newProducer().topic(arguments[1])
                        .enableBatching(Boolean.parseBoolean(arguments[5]))
                        .maxPendingMessages(100_000).blockIfQueueFull(true).sendTimeout(0, TimeUnit.SECONDS).create()) {
            send(producer, payload, Integer.parseInt(arguments[3]));
            long start = System.nanoTime();
            send(producer, payload, messages);
            if (producer.getLastSequenceId() != Long.parseLong(arguments[3]) + messages - 1) {
                throw new IllegalStateException("the last message that was stored is " + producer.getLastSequenceId());
            }
            double tookS = (System.nanoTime() - start) / 1e9;
            System.out.printf(Locale.ROOT, "RESULT {\"per_s\": %.0f, \"took_s\": %.2f}%n", messages / tookS, tookS);
        }
        System.exit(0);
    }

    private static void send(Producer<byte[]> producer, byte[] payload, int messages) throws Exception {
        for (int number = 0; number < messages; number++) {
            producer.sendAsync(payload);
        }
        producer.flush();
    }
}
