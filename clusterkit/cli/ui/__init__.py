"""Tables, progress bars and messages a person sees."""
