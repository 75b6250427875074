"""The report of one recorded session, put together from its sections."""

from __future__ import annotations

import amptui
from amptui.report.document import Document
from amptui.report.recorded import Recorded
from amptui.report.sections import head
from amptui.report.sections.conditions import conditions_section
from amptui.report.sections.criteria import criteria_section
from amptui.report.sections.findings import findings_section
from amptui.report.sections.forecast import forecast_section
from amptui.report.sections.happened import happened_section
from amptui.report.sections.limits import limits_section
from amptui.report.sections.measured import measured_section
from amptui.report.sections.pasted import pasted_section
from amptui.report.sections.stretch import stretch_section
from amptui.report.sections.verdict import cases_section, verdict_section


def compose(recorded: Recorded) -> Document:
    """The report as data; sections that have nothing to say are left out."""
    sections = (
        verdict_section(recorded),
        findings_section(recorded),
        stretch_section(recorded),
        cases_section(recorded),
        measured_section(recorded),
        forecast_section(recorded),
        pasted_section(recorded),
        criteria_section(recorded),
        conditions_section(recorded),
        happened_section(recorded),
        limits_section(recorded),
    )
    return Document(
        title=head.title(recorded),
        subtitle=head.subtitle(recorded),
        banner=head.banner(recorded),
        sections=[section for section in sections if section is not None],
        footer=f"Written by amptui {amptui.__version__} from what the session recorded; none of the project was run.",
    )
