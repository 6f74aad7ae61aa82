"""The command line: the only package that imports typer. Commands parse, call one engine, show."""
