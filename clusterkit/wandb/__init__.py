"""Offline W&B runs: reads their logs, decides what to upload, and verifies that it arrived."""
