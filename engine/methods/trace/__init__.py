"""TRACE: trajectories of relations, guided by narratives and by priors from those that ended."""
