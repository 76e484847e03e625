"""Exit codes with which a program requests something. A local job's supervisor imports only this."""

REQUEUE_CODE = 85
"""Exit code of a program that has checkpointed after a signal and asks to be restarted."""
