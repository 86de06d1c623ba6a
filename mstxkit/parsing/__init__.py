"""Raw NPU profiles of a run, parsed in processes of their own: found, parsed in parallel, looked at, noted."""
