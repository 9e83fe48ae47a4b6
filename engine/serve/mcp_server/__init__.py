"""kbqa for language models: tools, resources and a prompt over the Model Context Protocol."""
