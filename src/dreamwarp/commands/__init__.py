"""The subcommands of ``dreamwarp``."""
