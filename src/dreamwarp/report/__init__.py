"""Pictures of warps. Importing the package opens no figure; matplotlib loads with ``figures``."""
