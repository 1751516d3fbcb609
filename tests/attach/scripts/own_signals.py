"""Counts its steps, prints what every signal was, and ends by SIGTERM with a code of its own."""

import signal
import sys
import time

seen = []


def note(number, frame):
    seen.append(signal.Signals(number).name)
    if number == signal.SIGTERM:
        print("signals", *seen, flush=True)
        sys.exit(7)


for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCONT, signal.SIGTSTP):
    signal.signal(number, note)
print("ready", flush=True)
while True:
    time.sleep(0.01)
