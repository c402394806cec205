"""A report as a table, JSON, JUnit XML and a page of HTML."""

from __future__ import annotations

from pulsar_on_kafka.compat.report.html_page import html_page
from pulsar_on_kafka.compat.report.json_report import json_report
from pulsar_on_kafka.compat.report.junit import junit_xml
from pulsar_on_kafka.compat.report.terminal import show_report

__all__ = ["html_page", "json_report", "junit_xml", "show_report"]
