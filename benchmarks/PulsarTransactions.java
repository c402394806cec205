import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Transactions of Pulsar's own Java client: begin, send, commit, in so many threads at once.
 *
 * Run from its source: java -cp 'libs/*' PulsarTransactions.java URL TOPIC TRANSACTIONS MESSAGES OPEN WARM_UP SIZE BATCHING.
 * Prints one
 * line of JSON that begins with RESULT; latencies are of commit alone. transaction_workers.py does the same with our SDK.
 */
public final class PulsarTransactions {
    public static void main(String[] arguments) throws Exception {
        String url = arguments[0];
        String topic = arguments[1];
        int transactions = Integer.parseInt(arguments[2]);
        int messages = Integer.parseInt(arguments[3]);
        int open = Integer.parseInt(arguments[4]);
        int warmUp = Integer.parseInt(arguments[5]);
        byte[] payload = new byte[Integer.parseInt(arguments[6])];
        Arrays.fill(payload, (byte) 'x');
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url).enableTransaction(true).build();
                Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(Boolean.parseBoolean(arguments[7]))
                        .maxPendingMessages(100_000).blockIfQueueFull(true).sendTimeout(0, TimeUnit.SECONDS).create()) {
            run(client, producer, payload, warmUp, messages, open);
            long start = System.nanoTime();
            long[] commits = run(client, producer, payload, transactions, messages, open);
            double tookS = (System.nanoTime() - start) / 1e9;
            Arrays.sort(commits);
            System.out.printf(
                    java.util.Locale.ROOT,
                    "RESULT {\"per_s\": %.1f, \"took_s\": %.2f, \"commit_p50_ms\": %.3f, \"commit_p99_ms\": %.3f}%n",
                    transactions / tookS, tookS,
                    commits[commits.length / 2] / 1e6, commits[Math.min(commits.length - 1, commits.length * 99 / 100)] / 1e6);
        }
    }

    private static long[] run(PulsarClient client, Producer<byte[]> producer, byte[] payload, int transactions, int messages,
            int open) throws Exception {
        long[] commits = new long[transactions];
        AtomicInteger next = new AtomicInteger();
        ExecutorService pool = Executors.newFixedThreadPool(open);
        try {
            Future<?>[] workers = new Future<?>[open];
            for (int worker = 0; worker < open; worker++) {
                workers[worker] = pool.submit(() -> {
                    for (int number = next.getAndIncrement(); number < transactions; number = next.getAndIncrement()) {
                        commits[number] = one(client, producer, payload, messages);
                    }
                    return null;
                });
            }
            for (Future<?> worker : workers) {
                worker.get();
            }
        } finally {
            pool.shutdownNow();
        }
        return commits;
    }

    /** Nanoseconds that its commit took. */
    private static long one(PulsarClient client, Producer<byte[]> producer, byte[] payload, int messages) throws Exception {
        Transaction txn = client.newTransaction().withTransactionTimeout(5, TimeUnit.MINUTES).build().get();
        CompletableFuture<?>[] sends = new CompletableFuture<?>[messages];
        for (int number = 0; number < messages; number++) {
            sends[number] = producer.newMessage(txn).value(payload).sendAsync();
        }
        CompletableFuture.allOf(sends).get();
        long start = System.nanoTime();
        txn.commit().get();
        return System.nanoTime() - start;
    }
}
