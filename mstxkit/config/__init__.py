"""Configuration: one canonical model of what is to be profiled, read from and written as what each system has for it.

pydantic is loaded here and nowhere else in the package, so only when something is being configured.
"""
