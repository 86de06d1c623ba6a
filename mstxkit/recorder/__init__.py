"""The always-on recorder: the engine, the live file it writes, and what becomes of that file."""
