"""``robust0`` and ``python -m robust0``, torchrun's entrance: Ctrl-C is answered from the start."""

import sys


def main() -> None:
    """Run the command line; importing it takes a moment, in which Ctrl-C may come."""
    try:
        from robust0.cli.app import main as command_line
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()
