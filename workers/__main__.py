"""`python -m workers --request-fd N --record-fd M`: the process of one arm.

`workers.supervision.worker_process` starts it; it is not meant to be typed.
"""

import argparse
import faulthandler
import os
import sys

from workers.masking import KNOWN, NAMES_VARIABLE, MaskingStream
from workers.worker import Channel, Worker


def main() -> int:
    """Serve requests until Stop or the end of the channel. Exit status 0: ended as asked."""
    parser = argparse.ArgumentParser(prog="python -m workers")
    parser.add_argument("--request-fd", type=int, required=True)
    parser.add_argument("--record-fd", type=int, required=True)
    parser.add_argument("--heartbeat-s", type=float, default=1.0)
    arguments = parser.parse_args()
    KNOWN.add_variables(os.environ.get(NAMES_VARIABLE, "").split(","))
    sys.stdout, sys.stderr = MaskingStream(sys.stdout), MaskingStream(sys.stderr)
    faulthandler.enable()  # a crash leaves its Python stack in the log
    for fd in (arguments.request_fd, arguments.record_fd):
        os.set_inheritable(fd, False)  # a grandchild that held the channel would hide this process's end
    with Channel(request_fd=arguments.request_fd, record_fd=arguments.record_fd) as channel:
        return Worker(channel, heartbeat_s=arguments.heartbeat_s).run()


if __name__ == "__main__":
    sys.exit(main())
