"""Think-on-Graph: a beam search in which a language model scores relations and entities."""
