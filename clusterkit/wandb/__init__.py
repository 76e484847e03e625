"""Offline W&B runs: reading their logs, deciding what to upload, and proving that it arrived."""
