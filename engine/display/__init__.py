"""Draw answers for notebooks and pages, from the records that `Answer.to_dict` returns."""
