"""What is kept of jobs, in Redis: records, their text forms and seals, counters, quotas."""
