"""``python -m dreamwarp`` is the ``dreamwarp`` command."""

from dreamwarp.cli import main

main()
