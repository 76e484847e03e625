"""Evaluation: what a policy achieves on goals and in environments of its own, beside training or alone."""
