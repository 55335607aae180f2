"""Attacks on a real `rankd serve`, each with a healthy client beside it.

The rules:

- One kind of attack a file. The server is a process of its own, as in tests/acceptance, with its defaults but for the
  times in `limits.py`. Attacks go over bare sockets (`wire.py`), so that nothing on our side repairs what they send.
- Beside each attack another process asks for /healthz and a top 10 in turn every 20 ms (`healthy.py`). What it measured
  alone before the attack is its baseline, and how late it may be served follows from that (`bounds.py`, the only place
  that knows). The server's resident memory is read before, at its peak and after.
- Whatever an attack does, it is bounded: in bytes, in connections, and by a deadline. It sends to 127.0.0.1 only.
- The short form of every attack runs with `make test`, and all of them take less than a minute; the long form, marked
  `long`, runs with `make test-long`.
- A refusal is a status below 500, or 503. An attack that ends the server, or leaves a trace in its log, has succeeded.

`python -m tests.attack.report` runs both forms and prints what was measured as a table; with `--short` the short ones.
"""
