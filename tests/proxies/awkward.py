"""A program that is a small runtime, mostly with a fault, which its first argument names."""

import json
import sys
import time
from pathlib import Path

MODE = sys.argv[1]


def send(kind: str, payload: object, **envelope: object) -> None:
    """Write a frame."""
    frame = {"arcp": "1.1", "id": "x", "type": kind, "session_id": "sess_1", **envelope}
    sys.stdout.write(json.dumps({**frame, "payload": payload}) + "\n")
    sys.stdout.flush()


def meet(place: str, name: str, count: int) -> None:
    """Come to a folder, and wait until there are enough programs."""
    (Path(place) / name).touch()
    while len(list(Path(place).iterdir())) < count:
        time.sleep(0.05)


def work(job: dict[str, str]) -> None:
    """Do the job."""
    seq = 0

    def emit(kind: str, body: object) -> None:
        nonlocal seq
        seq += 1
        send("job.event", {"kind": kind, "ts": "", "body": body}, event_seq=seq, **job)

    def emit_often(times: int, kind: str, body: object) -> None:
        for _ in range(times):
            emit(kind, body)

    if MODE == "spends":
        emit_often(1_000, "metric", {"name": "cost.x", "value": 1, "unit": "USD"})
    elif MODE == "sloppy":
        emit("log", {"level": "shout", "message": "no such level"})
        emit("no_such_kind", {})
        emit("status", {"phase": "credential_rotated", "id": "c", "value": "a secret"})
        emit("log", {"level": "info", "message": "good"})
    elif MODE == "holes":
        chunk = {"result_id": "r", "data": "x", "encoding": "utf8", "more": True}
        emit("result_chunk", {**chunk, "chunk_seq": 0})
        emit("result_chunk", {**chunk, "chunk_seq": 2})
    elif MODE == "closes":
        sys.exit(0)
    elif MODE == "floods":
        emit_often(500, "log", {"level": "info", "message": "on" * 50_000})
        sys.stdin.readline()  # the cancel
        send("job.cancelled", job, **job)
        emit("log", {"level": "info", "message": "cleaned up"})
    elif MODE == "retracts":
        send("session.error", {"code": "UNAUTHENTICATED", "message": "a secret"})
        sys.exit(0)
    send("job.result", {"final_status": "success", "result": 1}, event_seq=seq + 1, **job)


def main() -> None:
    """Answer frames until the end of standard input."""
    features = ["cost.budget", "result_chunk"] if MODE in ("spends", "holes") else []
    for line in sys.stdin:
        frame = json.loads(line)
        match frame["type"]:
            case "session.hello" if MODE == "boasts":
                sys.stdout.write(" " * 100_000)
                sys.stdout.flush()
            case "session.hello" if MODE == "refuses":
                send("session.error", {"code": "UNAUTHENTICATED", "message": "a secret"})
            case "session.hello" if MODE == "babbles":
                sys.stdout.write("Hello! I am a program.\n")
                sys.stdout.flush()
            case "session.hello":
                agents = ["one", "two"] if MODE == "several" else ["one"]
                send("session.welcome", {"capabilities": {"features": features, "agents": agents}})
            case "job.submit":
                job = {"job_id": "job_1"}
                send("job.accepted", {"request_id": frame["id"], **job}, **job)
                if MODE == "meets":
                    meet(*frame["payload"]["input"])
                work(job)
            case "session.close":
                send("session.closed", {})


if MODE == "mumbles":
    sys.stderr.write("x" * 200_000)
main()
