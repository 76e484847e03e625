"""Evaluates a policy on separate goals and environments, beside training or alone."""
