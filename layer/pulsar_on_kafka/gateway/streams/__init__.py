"""Stream consumers and grouped checkpoint consumers of Pulsar 5: which consumer receives which segments."""
