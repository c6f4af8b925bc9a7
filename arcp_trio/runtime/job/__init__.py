"""Jobs: agents at work, their events, results and ends."""
