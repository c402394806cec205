package org.apache.pulsar.broker.testcontext;

import io.opentelemetry.sdk.testing.exporter.InMemoryMetricReader;
import java.util.Map;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.PulsarMockBookKeeper;
import pok.Inside;

/** Stands before Pulsar's class of this name, with the names that tests use: nothing was started beside a broker. */
public class PulsarTestContext {
    private final BookKeeper bookKeeper = Inside.of(BookKeeper.class, Map.of());

    public static class Builder {
    }

    /** Tests may say what it answers; nobody asks it. */
    public BookKeeper getBookKeeperClient() {
        return bookKeeper;
    }

    public PulsarMockBookKeeper getMockBookKeeper() {
        throw Inside.refusal("its BookKeeper");
    }

    public InMemoryMetricReader getOpenTelemetryMetricReader() {
        throw Inside.refusal("its metrics");
    }
}
