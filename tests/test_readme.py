"""Everything that the README shows is run: commands with the exit codes it names, files, output.

In a folder with the files that the README has shown so far: a `python` or `yaml` block whose first line names a file is
written there, another `python` block is run, each line of an `sh` block is a command (its exit code is 0, or what the
comment behind it says), and every line of a `text` block is in what the command before it printed.
"""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from amptui.ui.keys import markdown
from amptui.ui.screen_settings import read_screen_settings
from tests.commands import CRITERIA, FINDING, RESULT, ROOT, ROW, SCALER, UPDATE, Amptui

README = (ROOT / "README.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Block:
    """A fenced block, and the heading that it stands under."""

    section: str
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that its first line names."""
        named = re.match(r"# ([\w.]+\.(?:py|yaml))$", self.text.partition("\n")[0])
        return named[1] if named else None


def blocks() -> list[Block]:
    found, section, fence = [], "", None
    for line in README.splitlines():
        if fence is None and line.startswith("#"):
            section = line.strip("# ")
        elif fence is None and line.startswith("```"):
            fence, lines = line[3:], []
        elif line == "```":
            found.append(Block(section, fence, "\n".join(lines) + "\n"))
            fence = None
        elif fence is not None:
            lines.append(line)
    return found


def commands(block: Block) -> list[tuple[str, str]]:
    """(command, what the comment behind it says)."""
    lines = [line.partition("#") for line in block.text.splitlines() if line.strip()]
    return [(command.strip(), comment.strip()) for command, _, comment in lines]


SECTIONS = {
    "its own project, judged, and FP32 had back": [
        "Your own project", "Judge it", "Find cases", "Take it over", "Have FP32 back", "Look into a checkpoint",
    ],
    "a file to start from": ["Start from a file that runs"],
    "settings in a file": ["amptui.yaml"],
    "a rejection": ["When it is rejected"],
}  # fmt: skip


@pytest.fixture
def amptui(tmp_path: Path) -> Amptui:
    (tmp_path / "sample_projects").symlink_to(ROOT / "sample_projects")
    for block in blocks():
        if block.file is not None and block.language == "python":
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    return Amptui(tmp_path)


@pytest.mark.parametrize("sections", SECTIONS.values(), ids=SECTIONS)
def test_what_it_shows_is_so(amptui: Amptui, sections: list[str]) -> None:
    shown = [block for section in sections for block in blocks() if block.section == section]
    assert {block.section for block in shown} == set(sections)
    printed = ""
    for block in shown:
        if block.file is not None:
            (amptui.folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            run(amptui, [sys.executable, "-c", block.text], 0)
        elif block.language == "sh":
            for command, comment in commands(block):
                expected = re.search(r"exit code (\d+)", comment)
                program, *arguments = shlex.split(command)
                start = {"amptui": Amptui.command(), "python": [sys.executable]}[program]
                printed = run(amptui, [*start, *arguments], int(expected[1]) if expected else 0)
        elif block.language == "text":
            said = [" ".join(line.split()) for line in printed.splitlines()]
            for line in block.text.splitlines():
                assert " ".join(line.split()) in said


def run(amptui: Amptui, command: list[str], code: int) -> str:
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=amptui.folder,
        env=amptui.environment(),
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_block_is_run_or_checked_otherwise() -> None:
    run_here = {section for sections in SECTIONS.values() for section in sections}
    assert {block.section for block in blocks()} == run_here | {
        "Try it",
        "Install",
        "Keys and looks",
    }  # and these below


def test_the_own_project_is_about_twenty_lines() -> None:
    [mine] = [block for block in blocks() if block.file == "mine.py"]
    assert len([line for line in mine.text.splitlines() if line.strip()]) <= 25


def test_make_knows_its_targets_and_pip_the_extras() -> None:
    for block in blocks():
        for command, _ in commands(block) if block.section in ("Try it", "Install") else []:
            program, *arguments = shlex.split(command)
            if program == "make":
                assert (
                    subprocess.run(
                        ["make", "-n", *arguments], cwd=ROOT, check=False, stdout=subprocess.DEVNULL
                    ).returncode
                    == 0
                )
            else:
                assert program in ("pip", "pipx")
                assert arguments[0] == "install"
                extras = re.findall(r"\[(\w+)\]", arguments[1])
                assert set(extras) <= set(importlib.metadata.metadata("amptui").get_all("Provides-Extra"))


def test_its_configuration_file_is_read_and_its_keys_are_those_of_the_screen(tmp_path: Path) -> None:
    [block] = [block for block in blocks() if block.section == "Keys and looks"]
    file = tmp_path / "config.yaml"
    file.write_text(block.text, encoding="utf-8")
    settings = read_screen_settings(file)
    assert (settings.theme, settings.paints, settings.mouse) == ("light", 4.0, True)
    assert dict(settings.keys) == {"phase": "P", "copy": "y, ctrl+y"}
    assert markdown() in README


def test_its_table_of_commands_is_that_of_the_program(amptui: Amptui) -> None:
    table = README[README.index("## Commands") : README.index("## When it is rejected")]
    shown = {
        name for line in table.splitlines() if line.startswith("|") for name in re.findall(r"`amptui (\w+)`", line)
    }
    offered = re.findall(r"^    (\w+) {2,}\w", amptui("--help").out, flags=re.MULTILINE)
    assert sorted(shown) == sorted(offered)


def test_every_documented_json_key_is_in_its_tables() -> None:
    named = set(re.findall(r"`(\w+)`", README[README.index("## Exit codes and JSON") :]))
    assert named >= RESULT | ROW | UPDATE | SCALER | FINDING | CRITERIA


def test_links_and_pictures_are_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (ROOT / target).is_file(), target
