"""What every package needs and no reader looks for: checks of arguments, seeded generators, files, threads."""
