"""Connections: transports, and the tasks that move frames between them and sessions.

```
 the runtime's nursery: jobs, sessions, and one task for each connection

   Connection:  Handshake ─▶ Conversation ─▶ farewell
                             │
                             └ nursery ─┬─ its own task: Reader ─▶ Conversation ─▶ Session.command
                                        ├─ heartbeat: pings, losses ───▶┐
                                        └─ sender, while something waits│
                                              ▲                         ▼
   Session ─▶ Attachment: Unsent, Closing ────┴──────────────────────▶ Sender ─▶ Transport
```

**Objects.** `Attendance` runs connections, each behind a fence, and knows which there are. A
`Connection` is one transport's life: a `Handshake` finds the session that the first frame asks for,
with a welcome (`Welcomes`); then comes a `Conversation`, the time in which that session is
attached; then a farewell. The `Reader` gives it frames, checked in size and shape. The `Sender`
sends the welcome, the replay, and whatever the session hands over. The `Heartbeat` pings, and says
when the peer is lost. What a session and its connection share is the session's `Attachment`: the
frames that are not sent yet, and how the connection is to be closed (`Closing`).

**The nursery.** A conversation opens it. The task that opens it reads. The heartbeat has a task
that sleeps until a ping, a loss or the end of the token's time is due. The sender has a task only
while something has to wait: the socket is full, a replay is read, another node is asked what fills
a hole. Otherwise frames are sent in the step that hands them over, which takes no task's turn.
Nothing else belongs in there: what a client asks for runs in its session and its jobs.

**Invariants.**

- *Nothing is lost with a connection.* It holds copies of what is stored, and takes no numbers. The
  nursery can be cancelled at any checkpoint: the session is left, and the next connection gets a
  replay of all that the client has not seen (`tests/sessions/test_cut_anywhere.py`).
- *One order.* Frames leave in the order in which the session has handed them over, after the
  welcome and the replay. While the sender has a task, nothing is sent past it. Pings and pongs have
  no place in that order and go before the rest.
- *A frame is whole or the last one.* A write that is cut off closes the transport.
- *A connection fails alone.* An exception ends the nursery, and the client is closed with 1011. The
  step that sends is called by the session, so what goes wrong in it is raised in a task of the
  nursery instead (`tests/sessions/test_failures.py`).
- *All of it is bounded.* The reader waits while its session has no room, or too many pongs wait; a
  client that does not read costs what `Unsent` may hold. A write without progress is a loss.
- *The loop's faults are not the peer's.* Time in which the loop was held is not silence.

**Direction.** Attendance, connection, conversation, then heartbeat and sender, handshake, reader
and welcomes: each module sees those after it, and no session knows any of them.
"""
