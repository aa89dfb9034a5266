-- Not IF NOT EXISTS: that needs the privilege to create even where there is nothing to create.
DO $$ BEGIN
    IF to_regnamespace('holdfast') IS NULL THEN
        CREATE SCHEMA holdfast;
    END IF;
    IF to_regclass('holdfast.migration') IS NULL THEN
        CREATE TABLE holdfast.migration (
            number     integer PRIMARY KEY,
            name       text NOT NULL,
            checksum   text NOT NULL,                   -- SHA-256 of the file
            applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
    END IF;
END $$;
