"""The console is a page in the browser that shows what a cluster's subscriptions are at, and acts on it."""
