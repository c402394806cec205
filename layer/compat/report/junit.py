"""A report for continuous integration: JUnit XML, a suite for each area.

A difference is a failure, what is not supported or was not played is skipped, an explained difference passes and
says why.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Final

from pulsar_on_kafka.compat.compare import Comparison, CompatReport, ScenarioVerdict

# XML 1.0 has no way to write these.
_NOT_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: CompatReport) -> str:
    root = ET.Element("testsuites", name="compat", time=f"{report.seconds:.1f}")
    for area, counts in report.areas().items():
        suite = ET.SubElement(
            root,
            "testsuite",
            name=f"compat.{area}",
            tests=str(sum(counts.values())),
            failures=str(counts[ScenarioVerdict.DIFFER]),
            errors="0",
            skipped=str(counts[ScenarioVerdict.NOT_SUPPORTED] + counts[ScenarioVerdict.NOT_PLAYED]),
        )
        for found in report.comparisons:
            if found.scenario.area == area:
                _case(suite, found)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, found: Comparison) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"compat.{found.scenario.area}",
        name=_clean(found.scenario.name.removeprefix(f"{found.scenario.area}.")),
        time=f"{found.kafka.seconds:.2f}",
    )
    if found.pulsar.driven_by:
        properties = ET.SubElement(case, "properties")
        ET.SubElement(properties, "property", name="pulsar driven by", value=" + ".join(found.pulsar.driven_by))
    match found.verdict:
        case ScenarioVerdict.DIFFER:
            failure = ET.SubElement(case, "failure", message=_clean(found.reason))
            failure.text = _clean("\n".join(found.diff))
        case ScenarioVerdict.NOT_SUPPORTED | ScenarioVerdict.NOT_PLAYED:
            ET.SubElement(case, "skipped", message=_clean(found.reason))
        case ScenarioVerdict.EXPLAINED:
            ET.SubElement(case, "system-out").text = _clean(f"explained difference: {found.reason}")
        case ScenarioVerdict.AGREE:
            pass


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
