"""Typer commands: each parses its arguments, does its work in clusterkit.commands or below, and prints."""
