CREATE TABLE customer_order (
    id          bigint PRIMARY KEY,
    customer_id bigint NOT NULL,
    item        text NOT NULL,
    cents       integer NOT NULL
);

CREATE TABLE refund (
    order_id bigint NOT NULL REFERENCES customer_order (id),
    cents    integer NOT NULL,
    by       text NOT NULL
);

-- When the agent has read the orders of a customer.
CREATE TABLE access_log (
    customer_id bigint NOT NULL,
    at          timestamptz NOT NULL DEFAULT now()
);

INSERT INTO customer_order VALUES (7, 1, 'a blue vase', 4900), (8, 1, 'a lamp', 12900), (9, 2, 'a chair', 8900);
