"""What a rank decides about requests: pure state and moves; no clock, no file, no thread."""
