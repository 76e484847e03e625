"""Tables, progress bars and messages shown to the user."""
