"""What every package needs: checks of arguments, seeded generators, files, threads."""
