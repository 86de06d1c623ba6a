"""Patching: declared targets of a framework become ranges, without an edit of the framework, and can be put back."""
