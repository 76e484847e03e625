"""The life of a run: request, plan, submission, record and state."""
