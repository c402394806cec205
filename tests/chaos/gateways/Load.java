import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Load on a gateway by Pulsar's Java client: "URL KIND=TOPIC ..." says what there is of it. It writes down what it does, a line of JSON for
 * each thing, with the monotonic clock's nanoseconds. "finish" on its input has it send no more; when the input ends, everything does.
 * Who sends waits for those who receive where they are slower, so that little is left when it is to finish.
 */
public class Load {
    private static final String SUBSCRIPTION = "s";
    private static final int RECEIVE_MS = 100;
    private static final int AT_ONCE = 20;
    private static final int CUMULATIVE = 7;
    private static final int TXN_TIMEOUT_S = 15;
    private static final int ANSWER_S = 30;
    private static final int AGAIN_MS = 500;
    private static final int TELLERS = 3;
    private static final int RIVAL_HOLDS_MS = 1_000;
    private static final int AHEAD = 500;
    private static final int TELLERS_AHEAD = 50;
    private static final List<Thread> SENDING = new ArrayList<>();
    private static final List<Thread> OTHERS = new ArrayList<>();
    private static volatile boolean sends = true;
    private static volatile boolean runs = true;

    private interface Work {
        void run() throws Exception;
    }

    private final String url;
    private final String kind;
    private final String topic;
    private final Random dice = new Random();
    private final Set<String> came = ConcurrentHashMap.newKeySet();
    private final AtomicInteger toCome = new AtomicInteger();

    private Load(String url, String kind, String topic) {
        this.url = url;
        this.kind = kind;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        for (int number = 1; number < arguments.length; number++) {
            String[] said = arguments[number].split("=", 2);
            new Load(arguments[0], said[0], said[1]).begin();
        }
        for (int next = System.in.read(); next >= 0; next = System.in.read()) {
            if (next == '\n') {
                sends = false;
                for (Thread each : SENDING) {
                    each.join();
                }
            }
        }
        sends = runs = false;
        for (Thread each : OTHERS) {
            each.join(TimeUnit.SECONDS.toMillis(ANSWER_S));
        }
        System.exit(0);  // threads of the client may live on
    }

    private void begin() throws Exception {
        switch (kind) {
            case "receipts" -> one(consumer("a", SubscriptionType.Shared, 100));
            case "batches" -> one(consumer("a", SubscriptionType.Shared, 100));
            case "cumulative" -> {
                cumulative("a", consumer("a", SubscriptionType.Failover, 1));
                cumulative("b", consumer("b", SubscriptionType.Failover, 1));
            }
            case "alone" -> {
                alone(consumer("a", SubscriptionType.Exclusive, 1));
                begin(OTHERS, "rival", this::rival);
            }
            case "transactions" -> transactions();
            default -> throw new IllegalArgumentException(kind);
        }
        boolean batches = kind.equals("batches") || kind.equals("cumulative");
        Producer<byte[]> producer = client().newProducer()
                .topic(topic)
                .producerName("load")  // by which deduplication knows it again
                .sendTimeout(0, TimeUnit.SECONDS)
                .blockIfQueueFull(true)
                .enableBatching(batches)
                .batchingMaxPublishDelay(80, TimeUnit.MILLISECONDS)
                .create();
        begin(SENDING, "producer", () -> send(producer));
    }

    private PulsarClient client() throws Exception {
        return PulsarClient.builder()
                .serviceUrl(url)
                .enableTransaction(kind.equals("transactions"))
                .ioThreads(1)
                .listenerThreads(1)
                .startingBackoffInterval(100, TimeUnit.MILLISECONDS)
                .maxBackoffInterval(1, TimeUnit.SECONDS)
                .build();
    }

    private Consumer<byte[]> consumer(String name, SubscriptionType type, int queue) throws Exception {
        ConsumerBuilder<byte[]> asked = client().newConsumer()
                .topic(topic)
                .subscriptionName(SUBSCRIPTION)
                .consumerName(name)
                .subscriptionType(type)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .enableBatchIndexAcknowledgment(true)
                .negativeAckRedeliveryDelay(AGAIN_MS, TimeUnit.MILLISECONDS)
                .receiverQueueSize(queue);
        if (!kind.equals("alone")) {  // that one gathers acknowledgements, and does not hear of them
            asked.isAckReceiptEnabled(true).acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS);
        }
        return asked.subscribe();
    }

    // Sending -----------------------------------------------------------------------------------------------------------

    private void send(Producer<byte[]> producer) throws Exception {
        List<CompletableFuture<?>> underWay = new ArrayList<>();
        boolean tellers = kind.equals("transactions");
        int pauseMs = tellers ? 50 : 10;
        for (int number = 0; sends; number++) {
            while (sends && toCome.get() >= (tellers ? TELLERS_AHEAD : AHEAD)) {
                Thread.sleep(pauseMs);
            }
            toCome.incrementAndGet();
            String text = "" + number;
            say("sent", "text", text);
            underWay.add(producer.sendAsync(bytes(text)).handle((id, failure) -> {
                say(failure == null ? "stored" : "failed", "text", text, "why", reason(failure));
                return null;
            }));
            Thread.sleep(pauseMs);
        }
        for (CompletableFuture<?> each : underWay) {
            each.join();
        }
        say("finished");
    }

    // Acknowledging -----------------------------------------------------------------------------------------------------

    /** One by one, in any order. */
    private void one(Consumer<byte[]> consumer) {
        begin(OTHERS, "consumer", () -> {
            List<Message<byte[]>> held = new ArrayList<>();
            long since = 0;
            while (runs) {
                Message<byte[]> message = receive("a", consumer);
                if (consumer.getLastDisconnectedTimestamp() != since) {
                    since = consumer.getLastDisconnectedTimestamp();
                    held.clear();  // they come again, and what is acknowledged here might wait there
                }
                if (message != null && consumer.isConnected()) {
                    held.add(message);
                }
                while (!held.isEmpty() && (held.size() >= AT_ONCE || message == null)) {
                    Message<byte[]> chosen = held.remove(dice.nextInt(held.size()));
                    told(chosen, consumer.acknowledgeAsync(chosen));
                }
            }
        });
    }

    /** Each seventh and, when no more comes, the last one, and with it all before. */
    private void cumulative(String name, Consumer<byte[]> consumer) {
        begin(OTHERS, "consumer " + name, () -> {
            int received = 0;
            Message<byte[]> last = null;
            while (runs) {
                Message<byte[]> message = receive(name, consumer);
                boolean rests = message == null;
                last = rests ? last : message;
                if (last != null && (rests || ++received % CUMULATIVE == 0)) {
                    told(last, consumer.acknowledgeCumulativeAsync(last));
                    last = null;
                }
            }
        });
    }

    private void alone(Consumer<byte[]> consumer) {
        begin(OTHERS, "consumer", () -> {
            while (runs) {
                Message<byte[]> message = receive("a", consumer);
                if (message != null) {
                    told(message, consumer.acknowledgeAsync(message));
                }
            }
        });
    }

    /** Wants to be the one consumer of the subscription, too, and takes nothing when it is. */
    private void rival() throws Exception {
        PulsarClient client = client();
        while (sends) {
            try {
                Consumer<byte[]> made = client.newConsumer().topic(topic).subscriptionName(SUBSCRIPTION).receiverQueueSize(1).subscribe();
                say("in");
                Thread.sleep(RIVAL_HOLDS_MS);
                say("out");
                made.close();
                Thread.sleep(5 * RIVAL_HOLDS_MS);
            } catch (PulsarClientException refused) {
                say("refused", "why", reason(refused));
            }
            Thread.sleep(300);
        }
        client.close();
    }

    private void came(String text) {
        if (came.add(text)) {
            toCome.decrementAndGet();
        }
    }

    private Message<byte[]> receive(String name, Consumer<byte[]> consumer) throws PulsarClientException {
        Message<byte[]> message = consumer.receive(RECEIVE_MS, TimeUnit.MILLISECONDS);
        if (message != null) {
            say("received", "text", text(message), "id", id(message), "index", index(message), "by", name);
            if (!kind.equals("transactions")) {
                came(text(message));
            }
        }
        return message;
    }

    private void told(Message<byte[]> message, CompletableFuture<Void> answer) {
        answer.whenComplete((done, failure) -> {
            if (failure != null) {
                say("unacknowledged", "text", text(message), "why", reason(failure));
            } else if (!kind.equals("alone")) {
                say("acknowledged", "text", text(message));
            }
        });
    }

    // Transactions ------------------------------------------------------------------------------------------------------

    /** Several at a time take messages, tell the topic "-out" of them, and commit or abort both; another one sees what is told. */
    private void transactions() throws Exception {
        Consumer<byte[]> seeing = client().newConsumer()
                .topic(topic + "-out")
                .subscriptionName(SUBSCRIPTION)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
        begin(OTHERS, "seeing", () -> {
            while (runs) {
                Message<byte[]> message = seeing.receive(RECEIVE_MS, TimeUnit.MILLISECONDS);
                if (message != null) {
                    say("seen", "text", text(message));
                    came(text(message));
                    seeing.acknowledgeAsync(message).exceptionally(failure -> null);
                }
            }
        });
        Consumer<byte[]> consumer = consumer("a", SubscriptionType.Shared, 10);
        PulsarClient client = client();
        Producer<byte[]> telling = client.newProducer().topic(topic + "-out").sendTimeout(0, TimeUnit.SECONDS).create();
        for (int number = 0; number < TELLERS; number++) {
            begin(OTHERS, "teller " + number, () -> {
                while (runs) {
                    List<Message<byte[]>> taken = new ArrayList<>();
                    for (int wanted = 1 + dice.nextInt(3); wanted > 0; wanted--) {
                        Message<byte[]> message = receive("a", consumer);
                        if (message == null) {
                            break;
                        }
                        taken.add(message);
                    }
                    if (!taken.isEmpty() && !transaction(client, telling, consumer, taken)) {
                        taken.forEach(consumer::negativeAcknowledge);
                    }
                }
            });
        }
    }

    /** Whether it ended as it was meant to, as far as anybody told. */
    private boolean transaction(PulsarClient client, Producer<byte[]> telling, Consumer<byte[]> consumer, List<Message<byte[]>> taken)
            throws InterruptedException {
        Transaction txn;
        try {
            txn = client.newTransaction().withTransactionTimeout(TXN_TIMEOUT_S, TimeUnit.SECONDS).build().get(ANSWER_S, TimeUnit.SECONDS);
        } catch (InterruptedException interrupted) {
            throw interrupted;
        } catch (Exception failure) {
            say("not begun", "why", reason(failure));
            return false;
        }
        String name = txn.getTxnID().getMostSigBits() + ":" + txn.getTxnID().getLeastSigBits();
        say("begun", "txn", name, "ids", String.join(" ", taken.stream().map(Load::id).toList()));
        try {
            List<CompletableFuture<?>> parts = new ArrayList<>();
            for (Message<byte[]> each : taken) {
                parts.add(telling.newMessage(txn).value(bytes(id(each) + " " + name)).sendAsync());
                parts.add(consumer.acknowledgeAsync(each.getMessageId(), txn));
            }
            CompletableFuture.allOf(parts.toArray(CompletableFuture<?>[]::new)).get(ANSWER_S, TimeUnit.SECONDS);
            Thread.sleep(dice.nextInt(200));
        } catch (InterruptedException interrupted) {
            throw interrupted;
        } catch (Exception failure) {
            say("part failed", "txn", name, "why", reason(failure));
            end(name, txn.abort(), "aborted");
            return false;
        }
        boolean commits = dice.nextInt(3) > 0;
        return end(name, commits ? txn.commit() : txn.abort(), commits ? "committed" : "aborted");
    }

    private boolean end(String name, CompletableFuture<Void> ending, String what) throws InterruptedException {
        try {
            ending.get(ANSWER_S, TimeUnit.SECONDS);
            say(what, "txn", name);
            return true;
        } catch (InterruptedException interrupted) {
            throw interrupted;
        } catch (Exception failure) {
            say("unknown", "txn", name, "why", what + ": " + reason(failure));
            return false;
        }
    }

    // Writing down ------------------------------------------------------------------------------------------------------

    private void begin(List<Thread> these, String name, Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable failure) {
                say("died", "what", name, "why", reason(failure));
            }
        }, kind + " " + name);
        these.add(thread);
        thread.setDaemon(true);
        thread.start();
    }

    private static String text(Message<byte[]> message) {
        return new String(message.getValue(), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String id(Message<byte[]> message) {
        MessageIdAdv id = (MessageIdAdv) message.getMessageId();
        return id.getLedgerId() + ":" + id.getEntryId();
    }

    private static int index(Message<byte[]> message) {
        return Math.max(0, ((MessageIdAdv) message.getMessageId()).getBatchIndex());
    }

    private static String reason(Throwable failure) {
        return failure == null ? "" : failure.toString().replaceAll("[\\p{Cntrl}\"\\\\]", " ");
    }

    /** Names and values follow each other; numbers are such, everything else is text. */
    private void say(String did, Object... told) {
        StringBuilder line = new StringBuilder("{\"at\":").append(System.nanoTime());
        line.append(",\"load\":\"").append(kind).append("\",\"did\":\"").append(did).append('"');
        for (int at = 0; at < told.length; at += 2) {
            String quote = told[at + 1] instanceof Number ? "" : "\"";
            line.append(",\"").append(told[at]).append("\":").append(quote).append(told[at + 1]).append(quote);
        }
        String whole = line.append('}').toString();
        synchronized (System.out) {
            System.out.println(whole);
        }
    }
}
