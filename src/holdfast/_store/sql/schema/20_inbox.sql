-- Messages that take effect once.

-- Messages that a consumer has processed, each in the transaction of its effect. Not partitioned by day, because no index could span the
-- days and each message would have to be searched for in all. A message that comes again after its row was deleted counts as new.
CREATE TABLE holdfast.inbox (
    received_at timestamptz NOT NULL,
    consumer    text COLLATE "C" NOT NULL CHECK (octet_length(consumer) BETWEEN 1 AND 200),
    message_id  text COLLATE "C" NOT NULL CHECK (octet_length(message_id) BETWEEN 1 AND 500),
    PRIMARY KEY (message_id, consumer)
);
CREATE INDEX inbox_received_at ON holdfast.inbox (received_at);

-- True: the message is new to this consumer, and from the caller's commit on it is not. A second caller waits for the first.
-- SECURITY DEFINER: a consumer may call it and touch no table.
-- Called by applications, event.sql receive_message.
CREATE FUNCTION holdfast.receive(consumer text, message_id text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    fault text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a message is received in a READ COMMITTED transaction, not in a % one',
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'HF003';
    END IF;
    fault := coalesce(CASE WHEN consumer IS NULL OR message_id IS NULL THEN 'consumer, message_id: text expected, got null' END,
        holdfast.text_fault('consumer', consumer, 200), holdfast.text_fault('message_id', message_id, 500));
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault, 'HF005');
    END IF;
    INSERT INTO holdfast.inbox (received_at, consumer, message_id) VALUES (clock_timestamp(), receive.consumer, receive.message_id)
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;
