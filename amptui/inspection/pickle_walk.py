"""Walks a pickle stream opcode by opcode and builds inert nodes; imports nothing, calls nothing.

Bounds: the bytes that it is given, `MAX_OPCODES`, no recursion anywhere, and no allocation larger than what the stream
really holds.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from amptui.inspection.nodes import Node
from amptui.inspection.pickle_machine import BrokenError, Code, Machine, ShortError, Use
from amptui.inspection.pickle_opcodes import OPCODES

__all__ = ["MAX_OPCODES", "Code", "Use", "Walked", "walk"]

MAX_OPCODES = 5_000_000
_STOP = pickle.STOP[0]


@dataclass(frozen=True, slots=True)
class Walked:
    """A stream's value and how the walk ended.

    `problem` is "" where the stream was well formed; otherwise `root` is what had been built until then.
    `short` says that the bytes ran out; `end` is the offset after the last opcode read.
    """

    root: Node
    end: int
    code: Code
    problem: str = ""
    short: bool = False


def walk(data: bytes, start: int = 0) -> Walked:
    """Read one pickle stream in `data` from `start` to its STOP. Never raises for what the stream holds."""
    machine = Machine(data, start)
    problem, short, root = "", False, None
    try:
        root = _run(machine)
    except ShortError as error:
        problem, short = str(error), True
    except BrokenError as error:
        problem = str(error)
    if problem:
        root = machine.salvage()
    return Walked(root, machine.position, machine.code, problem, short)


def _run(machine: Machine) -> Node:
    """Follow the opcodes up to STOP; the value that then lies on the stack."""
    data = machine.data
    for _ in range(MAX_OPCODES):
        try:
            opcode = data[machine.position]
        except IndexError:
            raise ShortError("the pickle ends before its end mark") from None
        machine.position += 1
        if opcode == _STOP:
            return machine.pop()
        rule = OPCODES.get(opcode)
        if rule is None:
            raise BrokenError(f"byte {machine.position - 1}: 0x{opcode:02x} is not a pickle opcode")
        rule(machine)
    raise BrokenError(f"more than {MAX_OPCODES:,} opcodes")
