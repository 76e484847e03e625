"""What is known of a run: its record, state, log and verdict, and the ledger of this laptop."""
