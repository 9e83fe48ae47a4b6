"""kbqa as a server: HTTP and server-sent events over the `Service`, which owns an `Engine`.

`service` and `served` answer questions of many clients and know nothing of HTTP. `guard` decides
who may ask; `routes`, `pages` and `mcp` hold what can be asked. This is the only asynchronous code.
"""
