"""What the subcommands of ``dreamwarp`` do."""
