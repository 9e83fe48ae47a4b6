"""What only a terminal has: colours, a width, a prompt, and completion on Tab."""
