package pok;

import java.lang.reflect.Field;
import java.net.URI;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.service.BrokerService;
import org.apache.pulsar.client.admin.Clusters;
import org.apache.pulsar.client.admin.Namespaces;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.admin.Tenants;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.impl.ClientCnx;
import org.apache.pulsar.client.impl.ConnectionPool;
import org.apache.pulsar.client.impl.PulsarChannelInitializer;
import org.apache.pulsar.client.impl.PulsarClientImpl;
import org.apache.pulsar.client.impl.metrics.InstrumentProvider;
import org.apache.pulsar.common.api.proto.CommandConnected;
import org.apache.pulsar.common.policies.data.TenantInfo;
import org.mockito.Mockito;

/** The gateway that all tests of this JVM use, and what they find there in the place of a new broker. */
public final class World {
    public static final String CLUSTER = "test";
    public static final String SERVICE_URL = System.getProperty("pok.service");
    public static final String WEB_URL = System.getProperty("pok.web");
    private static final String SYSTEM = "pulsar";
    private static final String DEFAULT = "public/default";
    private static volatile PulsarAdmin last;

    private World() {
    }

    /**
     * What a test asks is asked of the gateway, but for what its setup says and holds there anyway: the cluster and the
     * namespace public/default are there, namespaces lie on the cluster, and a tenant has administrators, where nobody
     * logs in.
     */
    public static PulsarAdmin spied(PulsarAdmin built) throws PulsarAdminException {
        PulsarAdmin admin = Mockito.spy(built);
        Clusters clusters = Mockito.spy(built.clusters());
        Mockito.doNothing().when(clusters).createCluster(Mockito.eq(CLUSTER), Mockito.any());
        Namespaces namespaces = Mockito.spy(built.namespaces());
        Mockito.doNothing().when(namespaces)
                .setNamespaceReplicationClusters(Mockito.anyString(), Mockito.eq(Set.of(CLUSTER)));
        Mockito.doNothing().when(namespaces).createNamespace(DEFAULT);
        Tenants tenants = Mockito.spy(built.tenants());
        Mockito.doAnswer(call -> {
            TenantInfo said = call.getArgument(1);
            built.tenants().createTenant(call.getArgument(0),
                    TenantInfo.builder().allowedClusters(said.getAllowedClusters()).build());
            return null;
        }).when(tenants).createTenant(Mockito.anyString(), Mockito.any());
        Mockito.doReturn(clusters).when(admin).clusters();
        Mockito.doReturn(namespaces).when(admin).namespaces();
        Mockito.doReturn(tenants).when(admin).tenants();
        return admin;
    }

    /** Everything goes that tests before have left: a new broker has no namespaces. */
    public static void empty(PulsarAdmin admin) throws PulsarAdminException {
        for (String tenant : admin.tenants().getTenants()) {
            if (!tenant.equals(SYSTEM)) {
                for (String namespace : admin.namespaces().getNamespaces(tenant)) {
                    if (!namespace.equals(DEFAULT)) {
                        admin.namespaces().deleteNamespace(namespace, true);
                    }
                }
            }
        }
        for (String topic : admin.topics().getPartitionedTopicList(DEFAULT)) {
            admin.topics().deletePartitionedTopic(topic, true);
        }
        for (String topic : admin.topics().getList(DEFAULT)) {
            admin.topics().delete(topic, true);
        }
    }

    /** What a test's own clean-up could not delete goes by force, its namespaces stay. */
    static void tidy() {
        PulsarAdmin admin = last;
        try {
            for (String tenant : admin == null ? List.<String>of() : admin.tenants().getTenants()) {
                for (String namespace : tenant.equals(SYSTEM)
                        ? List.<String>of() : admin.namespaces().getNamespaces(tenant)) {
                    for (String topic : admin.topics().getPartitionedTopicList(namespace)) {
                        admin.topics().deletePartitionedTopic(topic, true);
                    }
                    for (String topic : admin.topics().getList(namespace)) {
                        admin.topics().delete(topic, true);
                    }
                }
            }
        } catch (PulsarAdminException failure) {
            throw new IllegalStateException(failure);
        }
    }

    /** A client that hears of the largest message of {@code conf}, as from a broker: tests make chunks by it. */
    public static PulsarClient limited(PulsarClient built, Supplier<ServiceConfiguration> conf) {
        PulsarClientImpl client = (PulsarClientImpl) built;
        Supplier<ClientCnx> connections = () -> new ClientCnx(
                InstrumentProvider.NOOP, client.getConfiguration(), client.eventLoopGroup()) {
            @Override
            protected void handleConnected(CommandConnected said) {
                super.handleConnected(said.setMaxMessageSize(conf.get().getMaxMessageSize()));
            }
        };
        try {
            Field initializer = ConnectionPool.class.getDeclaredField("channelInitializerHandler");
            Field supplier = PulsarChannelInitializer.class.getDeclaredField("clientCnxSupplier");
            initializer.setAccessible(true);
            supplier.setAccessible(true);
            supplier.set(initializer.get(client.getCnxPool()), connections);
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException(failure);
        }
        return built;
    }

    /** A broker that knows its addresses, its configuration and that no topic is the system's, and else nothing. */
    public static PulsarService broker(ServiceConfiguration conf, PulsarAdmin admin) {
        last = admin;
        Map<String, Supplier<Object>> known = new HashMap<>();
        for (String name : new String[] {"getBrokerServiceUrl", "getSafeBrokerServiceUrl"}) {
            known.put(name, () -> SERVICE_URL);
        }
        for (String name : new String[] {"getWebServiceAddress", "getSafeWebServiceAddress"}) {
            known.put(name, () -> WEB_URL);
        }
        known.put("getBrokerListenPort", () -> Optional.of(URI.create(SERVICE_URL).getPort()));
        known.put("getListenPortHTTP", () -> Optional.of(URI.create(WEB_URL).getPort()));
        known.put("getConfiguration", () -> conf);
        known.put("getConfig", () -> conf);
        known.put("getAdminClient", () -> admin);
        known.put("getBrokerService", () -> Inside.of(BrokerService.class, Map.of("isSystemTopic", () -> false)));
        return Inside.of(PulsarService.class, known);
    }
}
