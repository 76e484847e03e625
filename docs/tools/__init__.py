"""Makes the pages and pictures of the documentation that are not written by hand."""
