"""Reading, cleaning and filtering the lines of a dump."""
