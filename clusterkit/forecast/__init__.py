"""What a run would take before it is submitted: memory, time, its start in the queue. Pure."""
