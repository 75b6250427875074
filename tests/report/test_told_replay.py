"""What `amptui replay` prints."""

from __future__ import annotations

from amptui.findings.finding import Finding
from amptui.protocol.events import CaseReplayed, CaseRetained
from amptui.report.told_replay import list_retained, say_replayed

KEPT = CaseRetained(
    id="step-000002-bad_loss-00", step=2, update="main", case=None, outcome="bad_loss", path="p", bytes=2048
)


def test_a_list_ends_with_the_command_for_its_first_case() -> None:
    told = list_retained("s1", [KEPT]).splitlines()
    assert told[0].startswith("step-000002-bad_loss-00   step 2   update main")
    assert told[-1] == "amptui replay step-000002-bad_loss-00 --session s1"


def test_no_case_is_said_in_a_sentence() -> None:
    assert list_retained("s1", []) == "session s1 retained no case: no update was held back"


def test_outcome_variations_place_and_advice_are_told_in_this_order() -> None:
    finding = Finding(
        kind="overflow", severity="fault", stage="forward", step=2, module="fc\x1b[31m", op="linear",
        line="/p/train.py:7", fp32_ok=True, evidence=("linear is inf in float16",), advice="Run fc in FP32.",
    )  # fmt: skip
    told = say_replayed(
        CaseReplayed(
            id="c",
            step=2,
            update="main",
            outcome="same",
            replayed="traced at op level",
            findings=(finding,),
            variations=(("as it ran", "not finite"), ("true FP32, no scaling", "finite")),
        )
    )
    parts = [
        "SAME",
        "as it ran",
        "true FP32",
        "overflow: forward",
        "/p/train.py:7",
        "linear is inf",
        "→ Run fc in FP32.",
    ]
    assert [told.index(part) for part in parts] == sorted(told.index(part) for part in parts)
    assert "\x1b" not in told


def test_a_fixed_case_has_no_place() -> None:
    told = say_replayed(
        CaseReplayed(id="c", step=2, update="main", outcome="fixed", replayed="traced at op level", findings=())
    )
    assert told.splitlines()[0] == "c: FIXED: everything is finite now (traced at op level)"


def test_a_proved_mend_is_told_with_the_places_to_write_it() -> None:
    finding = Finding(
        kind="overflow", severity="fault", stage="forward", step=2, module="fc", advice="Run fc in FP32.",
        facts={"fp32_regions": ("fc",)},
    )  # fmt: skip
    told = say_replayed(
        CaseReplayed(id="c", step=2, update="main", outcome="same", replayed="traced at op level", findings=(finding,))
    )
    assert told.splitlines()[-1] == (
        "  Write it in the project: policy=Policy(fp32_regions=['fc']), or in amptui.yaml under policy: "
        'fp32_regions: ["fc"]'
    )
