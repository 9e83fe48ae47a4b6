"""New training questions, composed of questions and facts of a graph."""
