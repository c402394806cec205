package org.apache.pulsar.broker.service;

import java.util.Set;
import java.util.UUID;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.auth.MockedPulsarServiceBaseTest;
import org.apache.pulsar.common.policies.data.TenantInfoImpl;
import pok.Inside;

/** Stands before Pulsar's class of this name: tests in the namespace that it makes. */
public abstract class BrokerTestBase extends MockedPulsarServiceBaseTest {
    protected static final int ASYNC_EVENT_COMPLETION_WAIT = 100;

    public void baseSetup() throws Exception {
        internalSetup();
        makeNamespaces();
    }

    public void baseSetup(ServiceConfiguration given) throws Exception {
        internalSetup(given);
        makeNamespaces();
    }

    private void makeNamespaces() throws Exception {
        admin.tenants().createTenant("prop", new TenantInfoImpl(Set.of(), Set.of(configClusterName)));
        admin.namespaces().createNamespace("prop/ns-abc");
        afterSetup();
    }

    protected void afterSetup() throws Exception {
    }

    protected void createTransactionCoordinatorAssign() throws Exception {
    }

    protected void createTransactionCoordinatorAssign(int coordinators) throws Exception {
    }

    protected String newTopicName() {
        return "prop/ns-abc/topic-" + UUID.randomUUID();
    }

    void rolloverPerIntervalStats() {
        throw Inside.refusal("its clock of statistics");
    }

    protected void runGC() {
        throw Inside.refusal("its clock of idle topics");
    }

    void runMessageExpiryCheck() {
        throw Inside.refusal("its clock of expiry");
    }
}
