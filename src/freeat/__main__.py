"""``python -m freeat``, for launchers such as torchrun."""

from freeat.cli.main import main

if __name__ == "__main__":
    main()
