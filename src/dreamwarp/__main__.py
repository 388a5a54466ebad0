"""Entry point of ``dreamwarp`` and ``python -m dreamwarp``; handles Ctrl-C during imports too."""

import os
import signal
from typing import Any, NoReturn


def main() -> NoReturn:
    """Load the command line and run it. Ctrl-C while loading prints one line, as it does later."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not under nohup
    if is_default:
        signal.signal(signal.SIGINT, _end)
    from dreamwarp.cli import main as run

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _end(*signalled: Any) -> NoReturn:
    os.write(2, b"dreamwarp: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
