"""From question sets to a fine-tuned model that writes reasoning paths."""
