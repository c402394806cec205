"""The driver plans which records of a topic a read or a micro-batch gives."""
