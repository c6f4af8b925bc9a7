"""A runtime on standard input and output that uses all it may: blank lines, CRLF, a child."""

import json
import subprocess
import sys


def send(kind: str, payload: object, **envelope: object) -> None:
    """Write a frame."""
    frame = {"arcp": "1.1", "id": "x", "type": kind, "session_id": "sess_1", **envelope}
    line = json.dumps({**frame, "payload": payload}, ensure_ascii=False)
    sys.stdout.buffer.write(b"\n  \r\n" + line.encode() + b"\r\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Answer until standard input ends."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    for line in sys.stdin.buffer:
        frame = json.loads(line)
        match frame["type"]:
            case "session.hello":
                send("session.welcome", {"capabilities": {"features": []}})
            case "job.submit":
                job, value = {"job_id": "job_1"}, frame["payload"]["input"]
                send("job.accepted", {"request_id": frame["id"], **job}, **job)
                result = {"final_status": "success", "result": [value, child.pid]}
                send("job.result", result, event_seq=1, **job)
            case "session.close":
                send("session.closed", {})
    if len(sys.argv) > 1:
        while True:  # the client has to kill it
            child.wait()


main()
