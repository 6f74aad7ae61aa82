"""``python -m robust0``: the entrance for torchrun."""

from robust0.cli.app import main

if __name__ == "__main__":
    main()
