"""A model that follows a script, behind an API like that of OpenAI: to try the example without an account."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


def reply(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the next message of the assistant: look for the orders, refund the first one, and answer."""
    results = [message["content"] for message in messages if message["role"] == "tool"]
    if not results:
        return _call("find_orders")
    if len(results) == 1:
        order = json.loads(results[0])[0]
        return _call("refund", order_id=order["id"], cents=order["cents"])
    return {"role": "assistant", "content": f"I am sorry about that: {results[1]}."}


def _call(tool: str, **arguments: object) -> dict[str, Any]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": tool, "type": "function", "function": function}],
    }


class ScriptedModel:
    """Answers requests of models on loopback, and keeps them."""

    def __init__(self) -> None:
        self.requests: list[list[dict[str, Any]]] = []
        """The messages of each request."""
        self.tokens = 400
        """How many tokens a request takes."""

    @contextmanager
    def serving(self, port: int = 0) -> Generator[str]:
        """Return the address of the API."""
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
                model.requests.append(messages)
                message = reply(messages)
                reason = "tool_calls" if "tool_calls" in message else "stop"
                choice = {"index": 0, "message": message, "finish_reason": reason}
                usage = {"prompt_tokens": model.tokens, "completion_tokens": 0, "total_tokens": model.tokens}
                body = {"id": "scripted", "object": "chat.completion", "created": 0, "model": "scripted"}
                data = json.dumps(body | {"choices": [choice], "usage": usage}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that it overrides
                """Log nothing."""

        with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
            thread = Thread(target=server.serve_forever)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/v1"
            finally:
                server.shutdown()
                thread.join()
