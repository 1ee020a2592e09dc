"""The commands of the command line, one file each; heavy imports are inside them, so that --help is quick."""
