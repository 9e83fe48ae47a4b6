"""Speed of loading a dump: whole loads, their stages, and loads that are killed."""
