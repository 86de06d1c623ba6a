"""A stand-in for a framework on Ray: tiny workers, defined in every way that MindSpeed-RL and verl define theirs."""
