"""The description of the API: schemas, examples, and the reference page."""
