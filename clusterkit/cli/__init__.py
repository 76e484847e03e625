"""Typer commands: each parses its arguments, calls one verb and prints the result. No logic lives here."""
