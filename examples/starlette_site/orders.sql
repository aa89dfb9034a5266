CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, address text NOT NULL, receipt text);
