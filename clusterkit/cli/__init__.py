"""Typer commands: parse, call one verb, print. No logic lives here."""
