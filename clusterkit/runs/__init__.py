"""The life of a run: what is asked for, what is submitted, what is recorded, and what state it is in."""
