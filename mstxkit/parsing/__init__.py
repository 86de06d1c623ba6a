"""Raw NPU profiles of a run, parsed in parallel in processes of their own, checked, and recorded."""
