# What the page on the HTTP API takes for granted: a server, and a token.
holdfast serve --port 8080 > serve.log 2>&1 &
export URL=http://127.0.0.1:8080 TOKEN=$(holdfast tokens make ann --role operator | head -1)
curl --silent --show-error --retry 40 --retry-all-errors --retry-delay 1 --fail --output live.json "$URL/live"
