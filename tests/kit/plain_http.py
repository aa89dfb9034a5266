"""HTTP without TLS, as the tests use it on 127.0.0.1."""

from __future__ import annotations

import ssl

# To be given to httpx as `verify`. By default, each client reads the certificates of all authorities, which takes 40
# milliseconds of processor time. This context trusts none of them, so a request by HTTPS would fail.
NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
