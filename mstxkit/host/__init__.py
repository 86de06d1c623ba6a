"""What this process and this machine are: identity, clock, safe names, checked folders, hooks on imports."""
