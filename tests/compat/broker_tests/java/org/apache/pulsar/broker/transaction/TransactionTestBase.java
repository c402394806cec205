package org.apache.pulsar.broker.transaction;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.testcontext.PulsarTestContext;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminBuilder;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.common.policies.data.TenantInfoImpl;
import org.apache.pulsar.tests.TestRetrySupport;
import pok.Inside;
import pok.World;

/** Stands before Pulsar's class of this name, with a gateway in the place of its brokers. */
public abstract class TransactionTestBase extends TestRetrySupport {
    public static final String CLUSTER_NAME = World.CLUSTER;
    public static final String TENANT = "tnx";
    protected static final String NAMESPACE1 = TENANT + "/ns1";
    protected final List<PulsarService> pulsarServiceList = new ArrayList<>();
    protected List<PulsarTestContext> pulsarTestContexts = new ArrayList<>();
    protected ServiceConfiguration conf = new ServiceConfiguration();
    protected PulsarAdmin admin;
    protected PulsarClient pulsarClient;
    private int brokerCount = 1;

    public void internalSetup() throws Exception {
        incrementSetupNumber();
        admin = World.spied(createNewPulsarAdmin(PulsarAdmin.builder().serviceHttpUrl(World.WEB_URL)));
        World.empty(admin);
        for (int made = 0; made < brokerCount; made++) {
            pulsarServiceList.add(World.broker(conf, admin));
        }
        pulsarClient = PulsarClient.builder().serviceUrl(World.SERVICE_URL).build();
    }

    protected void setUpBase(int brokers, int coordinators, String topic, int partitions) throws Exception {
        setBrokerCount(brokers);
        internalSetup();
        admin.tenants().createTenant(TENANT, new TenantInfoImpl(Set.of(), Set.of(CLUSTER_NAME)));
        admin.namespaces().createNamespace(NAMESPACE1);
        if (topic != null && partitions == 0) {
            admin.topics().createNonPartitionedTopic(topic);
        } else if (topic != null) {
            admin.topics().createPartitionedTopic(topic, partitions);
        }
        pulsarClient.shutdown();
        pulsarClient = createNewPulsarClient(PulsarClient.builder().serviceUrl(World.SERVICE_URL)
                .statsInterval(0, TimeUnit.SECONDS).enableTransaction(true));
    }

    protected PulsarClient createNewPulsarClient(ClientBuilder builder) throws PulsarClientException {
        return builder.build();
    }

    protected PulsarAdmin createNewPulsarAdmin(PulsarAdminBuilder builder) throws PulsarClientException {
        return builder.build();
    }

    protected void createTransactionCoordinatorAssign(int coordinators) throws Exception {
    }

    protected void startBroker() throws Exception {
        throw Inside.refusal("starting it");
    }

    protected final void internalCleanup() {
        markCurrentSetupNumberCleaned();
        try {
            if (pulsarClient != null) {
                pulsarClient.shutdown();
            }
        } catch (PulsarClientException failure) {
            throw new IllegalStateException(failure);
        } finally {
            if (admin != null) {
                admin.close();
            }
            admin = null;
            pulsarClient = null;
            pulsarServiceList.clear();
            conf = new ServiceConfiguration();
        }
    }

    protected void deleteNamespaceWithRetry(String namespace, boolean force) throws Exception {
        admin.namespaces().deleteNamespace(namespace, force);
    }

    public void setBrokerCount(int count) {
        brokerCount = count;
    }

    public int getBrokerCount() {
        return brokerCount;
    }

    public List<PulsarService> getPulsarServiceList() {
        return pulsarServiceList;
    }
}
