"""What a program asks for by its exit code; alone here, as the process behind a local job imports it."""

REQUEUE_CODE = 85
"""A program exits with this when it has checkpointed after a signal and wants to be started again."""
