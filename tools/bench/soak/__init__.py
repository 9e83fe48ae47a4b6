"""Hours of mixed work in a row, with memory, descriptors, processes and files watched."""
