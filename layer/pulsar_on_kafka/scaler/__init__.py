"""KEDA's external scaler: it reports the backlog of subscriptions, by which KEDA scales their workers."""
