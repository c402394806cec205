"""Tests on two Kafka clusters that know one another, `west` and `east`."""
