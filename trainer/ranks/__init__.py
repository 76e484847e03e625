"""The processes that learn one run together: which this one is, how they start, meet and end."""
