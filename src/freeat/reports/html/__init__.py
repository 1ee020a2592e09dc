"""The HTML report: everything a folder holds on one page that needs no network."""
