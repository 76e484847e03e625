"""What a site offers, found out in one round trip: a script, its reader, and the settings that follow."""
