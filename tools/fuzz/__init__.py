"""Feed kbqa damaged and made-up input, and see that it answers or says what is wrong."""
