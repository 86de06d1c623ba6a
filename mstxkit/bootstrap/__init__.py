"""The ways into a process: by environment at interpreter start, by Ray's set-up hook, by frameworks' entry points."""
