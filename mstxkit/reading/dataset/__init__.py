"""A run beyond one machine: sealed files turned into Parquet where they lie, and tables of either."""
