"""What a job may do and spend: leases, their subsets, budgets. No I/O, no clock, no Trio."""
