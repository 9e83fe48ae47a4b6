"""kbqa as a server: HTTP and server-sent events over the `Service`, which owns an `Engine`.

`service` and `asking/` answer questions of many clients and know nothing of HTTP; `access/` decides
who may ask; `routes/` holds what can be asked. This is the only asynchronous code.
"""
