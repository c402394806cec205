package org.apache.pulsar.broker.auth;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.URI;
import java.net.URL;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Predicate;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.testcontext.PulsarTestContext;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminBuilder;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.impl.ConnectionPool;
import org.apache.pulsar.client.impl.PulsarClientImpl;
import org.apache.pulsar.common.policies.data.TenantInfoImpl;
import org.apache.pulsar.tests.TestRetrySupport;
import org.apache.zookeeper.MockZooKeeper;
import pok.Inside;
import pok.World;

/**
 * Stands before Pulsar's class of this name, with the names that tests use of it: they find a gateway where they expect
 * a broker of their own. What they want of the broker's inside is refused ({@link Inside}).
 */
public abstract class MockedPulsarServiceBaseTest extends TestRetrySupport {
    protected final String configClusterName = World.CLUSTER;
    protected ServiceConfiguration conf;
    protected PulsarTestContext pulsarTestContext;
    protected MockZooKeeper mockZooKeeper;
    protected MockZooKeeper mockZooKeeperGlobal;
    protected PulsarService pulsar;
    protected PulsarAdmin admin;
    protected PulsarClient pulsarClient;
    protected boolean enableBrokerGateway;
    protected boolean enableBrokerInterceptor;
    protected boolean useTestZookeeper;
    protected boolean isTcpLookup;
    protected URL brokerUrl;
    protected URL brokerUrlTls;
    protected URI lookupUrl;
    private final List<AutoCloseable> closeables = new ArrayList<>();

    public MockedPulsarServiceBaseTest() {
        resetConfig();
    }

    protected abstract void setup() throws Exception;

    protected abstract void cleanup() throws Exception;

    protected PulsarService getPulsar() {
        return pulsar;
    }

    protected final void resetConfig() {
        conf = getDefaultConf();
    }

    protected ServiceConfiguration getDefaultConf() {
        ServiceConfiguration made = new ServiceConfiguration();
        made.setClusterName(configClusterName);
        made.setAdvertisedAddress("localhost");
        made.setBrokerServicePort(Optional.of(0));
        made.setWebServicePort(Optional.of(0));
        return made;
    }

    protected void doInitConf() throws Exception {
    }

    protected final void internalSetup(ServiceConfiguration given) throws Exception {
        conf = given;
        internalSetup();
    }

    protected final void internalSetup() throws Exception {
        incrementSetupNumber();
        connect(0);
    }

    protected final void internalSetupForStatsTest() throws Exception {
        connect(1);
    }

    private void connect(int statsIntervalS) throws Exception {
        init();
        lookupUrl = URI.create(isTcpLookup ? World.SERVICE_URL : World.WEB_URL);
        pulsarClient = newPulsarClient(lookupUrl.toString(), statsIntervalS);
    }

    protected final void init() throws Exception {
        doInitConf();
        brokerUrl = new URL(World.WEB_URL);
        closeAdmin();
        PulsarAdminBuilder builder = PulsarAdmin.builder().serviceHttpUrl(World.WEB_URL);
        customizeNewPulsarAdminBuilder(builder);
        admin = World.spied(builder.build());
        pulsar = World.broker(conf, admin);
        pulsarTestContext = new PulsarTestContext();
        World.empty(admin);
    }

    protected final void internalCleanup() throws Exception {
        markCurrentSetupNumberCleaned();
        closeAdmin();
        if (pulsarClient != null) {
            pulsarClient.shutdown();
            pulsarClient = null;
        }
        pulsar = null;
        resetConfig();
        for (AutoCloseable each : closeables) {
            each.close();
        }
        closeables.clear();
        onCleanup();
    }

    protected void closeAdmin() {
        if (admin != null) {
            admin.close();
            admin = null;
        }
    }

    protected void onCleanup() {
    }

    protected <T extends AutoCloseable> T registerCloseable(T each) {
        closeables.add(each);
        return each;
    }

    protected PulsarClient newPulsarClient(String url, int statsIntervalS) throws PulsarClientException {
        ClientBuilder builder =
                PulsarClient.builder().serviceUrl(url).statsInterval(statsIntervalS, TimeUnit.SECONDS);
        customizeNewPulsarClientBuilder(builder);
        return createNewPulsarClient(builder);
    }

    protected PulsarClient createNewPulsarClient(ClientBuilder builder) throws PulsarClientException {
        return World.limited(builder.build(), () -> conf);
    }

    protected PulsarClient replacePulsarClient(ClientBuilder builder) throws PulsarClientException {
        if (pulsarClient != null) {
            pulsarClient.shutdown();
        }
        pulsarClient = createNewPulsarClient(builder);
        return pulsarClient;
    }

    protected void customizeNewPulsarClientBuilder(ClientBuilder builder) {
    }

    protected void customizeNewPulsarAdminBuilder(PulsarAdminBuilder builder) {
    }

    protected void customizeMainPulsarTestContextBuilder(PulsarTestContext.Builder builder) {
    }

    protected void beforePulsarStart(PulsarService started) throws Exception {
    }

    protected void afterPulsarStart(PulsarService started) throws Exception {
    }

    protected void startBroker() throws Exception {
        throw Inside.refusal("starting it");
    }

    protected void stopBroker() throws Exception {
        throw Inside.refusal("stopping it");
    }

    protected void restartBroker() throws Exception {
        throw Inside.refusal("restarting it");
    }

    protected void restartBroker(Consumer<ServiceConfiguration> change) throws Exception {
        restartBroker();
    }

    protected TenantInfoImpl createDefaultTenantInfo() throws Exception {
        return new TenantInfoImpl(Set.of(), Set.of(configClusterName));
    }

    protected void setupDefaultTenantAndNamespace() throws Exception {
        if (!admin.namespaces().getNamespaces("public").contains("public/default")) {
            admin.namespaces().createNamespace("public/default");
        }
    }

    protected void deleteNamespaceWithRetry(String namespace, boolean force) throws Exception {
        deleteNamespaceWithRetry(namespace, force, admin);
    }

    public static void deleteNamespaceWithRetry(String namespace, boolean force, PulsarAdmin admin) throws Exception {
        admin.namespaces().deleteNamespace(namespace, force);
    }

    public static boolean retryStrategically(Predicate<Void> holds, int times, long firstWaitMs) throws Exception {
        long waitMs = firstWaitMs;
        for (int left = times; left > 0; left--) {
            if (holds.test(null)) {
                return true;
            }
            Thread.sleep(waitMs);
            waitMs += firstWaitMs;
        }
        return holds.test(null);
    }

    public static void setFieldValue(Class<?> type, Object of, String name, Object value) throws Exception {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        field.set(of, value);
    }

    protected void sleepSeconds(int seconds) throws InterruptedException {
        TimeUnit.SECONDS.sleep(seconds);
    }

    protected void reconnectAllConnections() throws Exception {
        Method close = ConnectionPool.class.getDeclaredMethod("closeAllConnections");
        close.setAccessible(true);
        close.invoke(((PulsarClientImpl) pulsarClient).getCnxPool());
    }

    protected void logTopicStats(String topic) {
    }
}
