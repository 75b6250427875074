"""Reads many files in one process as confined as the reading child; run by path with `python -I -S`.

Arguments: the child's file, then a file that lists the paths. Writes one JSON line for each path.
"""

import json
import resource
import runpy
import sys
import time


def main() -> None:
    runpy.run_path(sys.argv[1])["register_package"]()
    from amptui.inspection import guard, reading, wire
    from amptui.inspection.command import Answer
    from amptui.report.inspect_text import inspect_text

    with open(sys.argv[2]) as listed:  # noqa: PTH123
        paths = json.load(listed)
    guard._warm_codecs()
    resource.setrlimit(resource.RLIMIT_DATA, (guard.MEMORY, guard.MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    sys.addaudithook(guard.refuse)
    for path in paths:
        start = time.process_time()
        answer = {"path": path, "error": ""}
        try:
            found = reading.inspect_path(path, values=True)
            public = wire.public(wire.unpacked(wire.packed(found)))
            json.dumps(public, allow_nan=False)
            page = inspect_text(Answer(inspections=(found,)))
            answer["printable"] = all(line.isprintable() for line in page.split("\n"))
            answer |= {name: public[name] for name in ("readable", "needs_code", "dangerous", "complete")}
            answer["faults"] = [
                finding["facts"]["code"] for finding in public["findings"] if finding["severity"] == "fault"
            ]
        except BaseException as error:
            answer["error"] = f"{type(error).__name__}: {error} at {_where(error)}"
        answer["seconds"] = time.process_time() - start
        sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.write(json.dumps({"peak_kb": peak_kilobytes()}) + "\n")


def peak_kilobytes() -> int:
    """The most memory that this program had; ru_maxrss would count what its parent had before it."""
    with open("/proc/self/status") as status:  # noqa: PTH123
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""


main()
