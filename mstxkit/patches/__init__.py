"""One file per framework, named by its import root: data only, `PATCH = Patch(...)`, found by listing this folder."""
