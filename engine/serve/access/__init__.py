"""Who may send requests: hosts, origins, keys, rates and sizes."""
